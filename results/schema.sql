-- The database of results (SQLite, STRICT tables). Everything measured is a row; every table, chart, gate and export is a query.
--
-- Conventions: every quantity has its unit in its name (_ns, _bytes, _tokens, _ppm, _unix_ms). Identity keys are the lower-case
-- hex SHA-256 of canonical JSON (sorted keys, no spaces) of the columns marked "id", so that files of two hosts merge without
-- rewriting. Inserts name the key they may collide on (ON CONFLICT (key) ...), never OR IGNORE, which hides other failures.
-- This file always is the newest version: store.c sets user_version and holds the steps that bring older files here.
PRAGMA application_id = 0x4B56424E; -- 'KVBN'

-- Where it ran and what was built. All columns: id.
CREATE TABLE env (
	env_id TEXT PRIMARY KEY CHECK (length(env_id) = 64),
	host TEXT NOT NULL, os TEXT NOT NULL, cpu TEXT NOT NULL, isa TEXT NOT NULL, device TEXT NOT NULL,
	threads INTEGER NOT NULL, ram_bytes INTEGER NOT NULL,
	version TEXT NOT NULL, "commit" TEXT NOT NULL, dirty INTEGER NOT NULL CHECK (dirty IN (0, 1)),
	build_flags TEXT NOT NULL, libraries TEXT NOT NULL -- "sqlite 3.40.1, jansson 2.14, ..."
) STRICT, WITHOUT ROWID;

-- id: all but the path, which differs between hosts.
CREATE TABLE model (
	model_id TEXT PRIMARY KEY CHECK (length(model_id) = 64),
	role TEXT NOT NULL CHECK (role IN ('target', 'proxy')),
	name TEXT NOT NULL, path TEXT NOT NULL, arch TEXT NOT NULL, dtype TEXT NOT NULL,
	sha256 TEXT NOT NULL, tokenizer_sha256 TEXT NOT NULL, chat_template TEXT NOT NULL, template_sha256 TEXT NOT NULL,
	params INTEGER NOT NULL, layers INTEGER NOT NULL, kv_heads INTEGER NOT NULL, head_dim INTEGER NOT NULL,
	kv_bytes_per_token INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A pruning method with every parameter except the ratio. id: name, version, params.
CREATE TABLE method (
	method_id TEXT PRIMARY KEY CHECK (length(method_id) = 64),
	name TEXT NOT NULL, version INTEGER NOT NULL,
	params TEXT NOT NULL CHECK (json_valid(params)), -- effective ones, defaults filled in
	origin TEXT NOT NULL                             -- where the defaults come from
) STRICT, WITHOUT ROWID;

-- Data, prompt template, metric. id: all but data_state.
CREATE TABLE task (
	task_id TEXT PRIMARY KEY CHECK (length(task_id) = 64),
	name TEXT NOT NULL, version INTEGER NOT NULL,
	metric TEXT NOT NULL, binary_metric INTEGER NOT NULL CHECK (binary_metric IN (0, 1)),
	data_sha256 TEXT NOT NULL, template_sha256 TEXT NOT NULL,
	variant TEXT NOT NULL,    -- how the texts were made, where there are several ways ("upstream oct2024"); "" = one way only
	data_state TEXT NOT NULL CHECK (data_state IN ('', 'pinned', 'recorded', 'unpinned')), -- is the data's SHA-256 a known one? "" = generated
	params TEXT NOT NULL CHECK (json_valid(params))
) STRICT, WITHOUT ROWID;

-- One point of the grid: pair x task x length x protocol x mode x variant. id: all but position and samples_planned.
CREATE TABLE cell (
	cell_id TEXT PRIMARY KEY CHECK (length(cell_id) = 64),
	target_id TEXT NOT NULL REFERENCES model, proxy_id TEXT REFERENCES model, -- proxy NULL = none
	task_id TEXT NOT NULL REFERENCES task, method_id TEXT NOT NULL REFERENCES method,
	retained_ppm INTEGER NOT NULL CHECK (retained_ppm BETWEEN 1 AND 1000000), -- share kept; an integer, so that keys are exact
	context_tokens INTEGER NOT NULL CHECK (context_tokens >= 0),              -- as requested; 0 = the data's own length
	protocol TEXT NOT NULL CHECK (protocol IN ('agnostic', 'aware')),         -- aware: pruned with the question in sight
	mode TEXT NOT NULL CHECK (mode IN ('single', 'multi-turn', 'multi-request')),
	topology TEXT NOT NULL CHECK (replace(replace(replace(topology, 'emulated-', ''), '+offload', ''), '+cudnn', '') IN ('cpu', 'gpu', 'shared', 'dual', 'proxy-cpu', 'proxy-gpu')),
	precision TEXT NOT NULL, seed INTEGER NOT NULL,
	measure_version INTEGER NOT NULL,                                         -- of the measuring procedure
	samples_planned INTEGER NOT NULL CHECK (samples_planned >= 0),
	position INTEGER NOT NULL                                                 -- order of first planning
) STRICT, WITHOUT ROWID;
CREATE INDEX cell_order ON cell (position);

-- One process.
CREATE TABLE run (
	run_id TEXT PRIMARY KEY CHECK (length(run_id) = 32), -- 128 random bits
	env_id TEXT NOT NULL REFERENCES env,
	argv TEXT NOT NULL CHECK (json_valid(argv)), plan TEXT NOT NULL CHECK (json_valid(plan)),
	started_unix_ms INTEGER NOT NULL, ended_unix_ms INTEGER, exit_code INTEGER -- NULL: still running, or killed
) STRICT, WITHOUT ROWID;

-- The unit that counts: one question of one cell.
CREATE TABLE sample (
	cell_id TEXT NOT NULL REFERENCES cell, sample_id TEXT NOT NULL,
	context_id TEXT NOT NULL,                       -- the cluster: questions about one context are not independent
	run_id TEXT NOT NULL REFERENCES run,
	status TEXT NOT NULL CHECK (status IN ('ok', 'failed', 'oom', 'not-applicable')), message TEXT NOT NULL,
	metric TEXT NOT NULL, score REAL,                -- score, also_score, scorer_version: what re-scoring may change
	also_metric TEXT NOT NULL, also_score REAL,      -- a second metric of the same answer; "" = none
	scorer_version INTEGER NOT NULL,
	question TEXT NOT NULL, gold TEXT NOT NULL CHECK (json_valid(gold)),
	answer TEXT NOT NULL, answer_ids TEXT NOT NULL CHECK (json_valid(answer_ids)), finish TEXT NOT NULL CHECK (finish IN ('stop', 'length', 'none')),
	prompt_sha256 TEXT NOT NULL,                    -- over the prompt's token ids
	flags INTEGER NOT NULL,                         -- FLAG_* of runner.h
	prefix_tokens INTEGER NOT NULL, context_tokens INTEGER NOT NULL, question_tokens INTEGER NOT NULL, answer_tokens INTEGER NOT NULL,
	"group" TEXT NOT NULL,                          -- the part of the task it belongs to ("4-8k", "easy short"); "" = none
	truncation TEXT NOT NULL CHECK (truncation IN ('none', 'text', 'ids')), -- the middle left out: of the text, or of its token ids
	cut_tokens INTEGER NOT NULL CHECK ((truncation = 'none') = (cut_tokens = 0)),
	depth REAL,                                     -- of the needle, 0..1
	needle_token INTEGER, needle_char INTEGER,      -- tokens and characters of the context before the needle; NULL = not counted
	kept TEXT CHECK (kept IS NULL OR json_valid(kept)), -- JSON array [layer * kv_heads + head] of entries kept, counted in the cache
	kept_total INTEGER NOT NULL, kv_bytes_full INTEGER NOT NULL, kv_bytes_kept INTEGER NOT NULL,
	oom_bytes INTEGER NOT NULL,                     -- status oom: what was asked for
	stored_unix_ms INTEGER NOT NULL,
	oom_free_bytes INTEGER,                         -- and what was free then; NULL = not known
	PRIMARY KEY (cell_id, sample_id),
	CHECK ((status = 'ok') = (score IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- Raw repetitions of the timing pass, never means. ttft is measured on its own; its parts are prefill .. first_token, on the
-- critical path. second_pass .. gather are details, where a method has them: they lie inside a part (second_pass, mapper, wait in
-- score; allocate in select; gather in compact) or beside it on another device or thread (proxy_prefill), and are in no sum.
CREATE TABLE timing (
	cell_id TEXT NOT NULL REFERENCES cell, run_id TEXT NOT NULL REFERENCES run,
	phase TEXT NOT NULL CHECK (phase IN ('prefill', 'score', 'select', 'compact', 'question', 'first_token', 'ttft', 'second_ttft', 'decode',
		'second_pass', 'proxy_prefill', 'mapper', 'wait', 'allocate', 'gather')),
	warmup INTEGER NOT NULL CHECK (warmup IN (0, 1)), repetition INTEGER NOT NULL,
	clock TEXT NOT NULL CHECK (clock IN ('host', 'cuda_event')),
	duration_ns INTEGER NOT NULL CHECK (duration_ns >= 0),
	tokens INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, kv_bytes_before INTEGER NOT NULL, kv_bytes_after INTEGER NOT NULL,
	PRIMARY KEY (cell_id, run_id, phase, warmup, repetition, clock)
) STRICT, WITHOUT ROWID;

-- Where the peak of the timing pass lies: bytes of one part on one device, the largest of the run's repetitions.
CREATE TABLE memory (
	cell_id TEXT NOT NULL REFERENCES cell, run_id TEXT NOT NULL REFERENCES run,
	device INTEGER NOT NULL CHECK (device >= 0), -- 0 = the target's, 1 = the proxy's where it has its own
	part TEXT NOT NULL CHECK (part <> ''),       -- total, weights, kv, activations, scores, proxy, compaction
	peak_bytes INTEGER NOT NULL CHECK (peak_bytes >= 0),
	PRIMARY KEY (cell_id, run_id, device, part)
) STRICT, WITHOUT ROWID;

-- What must be known of a cell's repetitions beside their times. floors: the least a phase can take, its arithmetic at the peak of the
-- machine, measured in the same process. waited_ppm: how long threads were ready and had no core, all together, of the time measured.
CREATE TABLE timing_fact (
	cell_id TEXT NOT NULL REFERENCES cell, run_id TEXT NOT NULL REFERENCES run,
	name TEXT NOT NULL CHECK (name IN ('prefill_floor_ns', 'second_pass_floor_ns', 'waited_ppm')),
	value INTEGER NOT NULL CHECK (value >= 0),
	PRIMARY KEY (cell_id, run_id, name)
) STRICT, WITHOUT ROWID;

-- One training of a mapper, a budget table, an importance MLP. A run of many processes (resumed from checkpoints) is one row.
CREATE TABLE training (
	training_id TEXT PRIMARY KEY CHECK (length(training_id) = 32), -- 128 random bits
	kind TEXT NOT NULL CHECK (kind <> ''), name TEXT NOT NULL,     -- "proxykv", "lkv", "kvmlp"; the name it was asked for by
	config TEXT NOT NULL CHECK (json_valid(config)), seed INTEGER NOT NULL,
	env_id TEXT REFERENCES env,
	target_sha256 TEXT NOT NULL, proxy_sha256 TEXT NOT NULL,       -- "" = no proxy
	contexts TEXT NOT NULL CHECK (json_valid(contexts)),           -- JSON array: SHA-256 of each context seen
	weights_path TEXT NOT NULL, weights_sha256 TEXT NOT NULL,      -- "" until it ended well
	started_unix_ms INTEGER NOT NULL, ended_unix_ms INTEGER        -- NULL: still running, or killed
) STRICT, WITHOUT ROWID;

-- Its curves: one term at one step. NULL = it was not a number.
CREATE TABLE training_step (
	training_id TEXT NOT NULL REFERENCES training,
	step INTEGER NOT NULL CHECK (step >= 0), term TEXT NOT NULL CHECK (term <> ''), -- "loss", "L_bin", "recall@0.1", "lr", ...
	value REAL,
	PRIMARY KEY (training_id, term, step)
) STRICT, WITHOUT ROWID;

-- What nights are judged against. Set and moved by command only; the newest version of a name holds, the older ones say when it
-- moved and why. Lives in the history file beside the nights' databases, as do the next three tables.
CREATE TABLE baseline (
	name TEXT NOT NULL CHECK (name <> ''), version INTEGER NOT NULL CHECK (version >= 1),
	"database" TEXT NOT NULL, -- path, relative to the history file's folder where it lies below it
	run_id TEXT NOT NULL,     -- "" = all runs of that database
	digest TEXT NOT NULL,     -- of its results (store_digest): tells a file that changed since
	"commit" TEXT NOT NULL, why TEXT NOT NULL, set_unix_ms INTEGER NOT NULL,
	PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- One night that was gated. Outlives its database.
CREATE TABLE night (
	night_id TEXT PRIMARY KEY, -- the newest run of its database
	"database" TEXT NOT NULL, "commit" TEXT NOT NULL,
	machine TEXT NOT NULL,     -- host, CPU, kernel path, device, threads: absolute times compare within one only
	baseline TEXT NOT NULL, baseline_version INTEGER NOT NULL, -- "", 0 = there was none
	exit_code INTEGER NOT NULL, started_unix_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Its series: score, ttft_ns, ttft_of_full of each cell.
CREATE TABLE night_figure (
	night_id TEXT NOT NULL REFERENCES night, cell_id TEXT NOT NULL,
	figure TEXT NOT NULL CHECK (figure IN ('score', 'ttft_ns', 'ttft_of_full')),
	label TEXT NOT NULL, value REAL NOT NULL, n INTEGER NOT NULL,
	PRIMARY KEY (night_id, cell_id, figure)
) STRICT, WITHOUT ROWID;

-- What the gate said of it, in the order it said it.
CREATE TABLE alert (
	night_id TEXT NOT NULL REFERENCES night, position INTEGER NOT NULL,
	level TEXT NOT NULL CHECK (level IN ('regression', 'incomplete', 'notice')),
	kind TEXT NOT NULL, cell_id TEXT NOT NULL, label TEXT NOT NULL, -- cell_id "" = of the whole night
	old REAL, new REAL, lo REAL, hi REAL, n INTEGER NOT NULL,
	message TEXT NOT NULL,
	PRIMARY KEY (night_id, position)
) STRICT, WITHOUT ROWID;
