-- From version 1 to 2. Steps are history: never edited once a release had them (schema.sql holds the tables of today).
-- A CHECK cannot be altered: timing is made anew with more phases. Nothing refers to it.
CREATE TABLE timing_2 (
	cell_id TEXT NOT NULL REFERENCES cell, run_id TEXT NOT NULL REFERENCES run,
	phase TEXT NOT NULL CHECK (phase IN ('prefill', 'score', 'select', 'compact', 'question', 'first_token', 'ttft', 'second_ttft', 'decode',
		'second_pass', 'proxy_prefill', 'mapper', 'wait', 'allocate', 'gather')),
	warmup INTEGER NOT NULL CHECK (warmup IN (0, 1)), repetition INTEGER NOT NULL,
	clock TEXT NOT NULL CHECK (clock IN ('host', 'cuda_event')),
	duration_ns INTEGER NOT NULL CHECK (duration_ns >= 0),
	tokens INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, kv_bytes_before INTEGER NOT NULL, kv_bytes_after INTEGER NOT NULL,
	PRIMARY KEY (cell_id, run_id, phase, warmup, repetition, clock)
) STRICT, WITHOUT ROWID;
INSERT INTO timing_2 SELECT cell_id, run_id, phase, warmup, repetition, clock, duration_ns, tokens, peak_bytes, kv_bytes_before,
	kv_bytes_after FROM timing;
DROP TABLE timing;
ALTER TABLE timing_2 RENAME TO timing;

CREATE TABLE memory (
	cell_id TEXT NOT NULL REFERENCES cell, run_id TEXT NOT NULL REFERENCES run,
	device INTEGER NOT NULL CHECK (device >= 0),
	part TEXT NOT NULL CHECK (part <> ''),
	peak_bytes INTEGER NOT NULL CHECK (peak_bytes >= 0),
	PRIMARY KEY (cell_id, run_id, device, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE training (
	training_id TEXT PRIMARY KEY CHECK (length(training_id) = 32),
	kind TEXT NOT NULL CHECK (kind <> ''), name TEXT NOT NULL,
	config TEXT NOT NULL CHECK (json_valid(config)), seed INTEGER NOT NULL,
	env_id TEXT REFERENCES env,
	target_sha256 TEXT NOT NULL, proxy_sha256 TEXT NOT NULL,
	contexts TEXT NOT NULL CHECK (json_valid(contexts)),
	weights_path TEXT NOT NULL, weights_sha256 TEXT NOT NULL,
	started_unix_ms INTEGER NOT NULL, ended_unix_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE training_step (
	training_id TEXT NOT NULL REFERENCES training,
	step INTEGER NOT NULL CHECK (step >= 0), term TEXT NOT NULL CHECK (term <> ''),
	value REAL,
	PRIMARY KEY (training_id, term, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE baseline (
	name TEXT NOT NULL CHECK (name <> ''), version INTEGER NOT NULL CHECK (version >= 1),
	"database" TEXT NOT NULL,
	run_id TEXT NOT NULL,
	digest TEXT NOT NULL,
	"commit" TEXT NOT NULL, why TEXT NOT NULL, set_unix_ms INTEGER NOT NULL,
	PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE night (
	night_id TEXT PRIMARY KEY,
	"database" TEXT NOT NULL, "commit" TEXT NOT NULL,
	machine TEXT NOT NULL,
	baseline TEXT NOT NULL, baseline_version INTEGER NOT NULL,
	exit_code INTEGER NOT NULL, started_unix_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE night_figure (
	night_id TEXT NOT NULL REFERENCES night, cell_id TEXT NOT NULL,
	figure TEXT NOT NULL CHECK (figure IN ('score', 'ttft_ns', 'ttft_of_full')),
	label TEXT NOT NULL, value REAL NOT NULL, n INTEGER NOT NULL,
	PRIMARY KEY (night_id, cell_id, figure)
) STRICT, WITHOUT ROWID;

CREATE TABLE alert (
	night_id TEXT NOT NULL REFERENCES night, position INTEGER NOT NULL,
	level TEXT NOT NULL CHECK (level IN ('regression', 'incomplete', 'notice')),
	kind TEXT NOT NULL, cell_id TEXT NOT NULL, label TEXT NOT NULL,
	old REAL, new REAL, lo REAL, hi REAL, n INTEGER NOT NULL,
	message TEXT NOT NULL,
	PRIMARY KEY (night_id, position)
) STRICT, WITHOUT ROWID;
