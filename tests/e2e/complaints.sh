#!/bin/bash
# What users complain about in other harnesses of these benchmarks, and the test or option that answers it here. A row: the complaint;
# what we do; the tests that hold it (FILE:FUNCTION, or a script). The script checks that they are there; they run by themselves.
cd "$(dirname "$0")/../.."
answered() { # COMPLAINT, ANSWER, tests...
	local complaint=$1 missing= t; shift 2
	[ $# -gt 0 ] || missing=' no test'
	for t in "$@"; do
		case $t in
		*:*) [ "$(grep -cwE "${t#*:}" "tests/unit/${t%%:*}" 2>/dev/null)" -ge 2 ] || missing+=" $t" ;; # defined, and in main's list
		*) [ -x "tests/$t" ] || missing+=" $t" ;;
		esac
	done
	[ -z "$missing" ] && echo "ok - $complaint" || echo "not ok - $complaint:$missing"
}
K=${KVBENCH:-./kvbench}
option() { "$K" run --help | grep -qE "^  $1 "; }

answered 'LongBench far off: one gold answer, left truncation, sampling, stops read wrongly' 'all answers; the middle goes; greedy; stops as data' \
	tasks/test_longbench_scores.c:test_longbench_published tasks/test_longbench.c:test_cut_official tasks/test_longbench.c:test_few_shot runners/test_runner.c:answers_have_a_least_length
answered 'a missing chat template halves QA scores' "by the hash of the model's own; an unknown one is refused with a hint" \
	model/test_chat.c:fixture_llama3 model/test_chat.c:template_for_another_tokenizer_is_refused
answered 'a chat template around few-shot and code tasks' 'none there, as upstream' tasks/test_longbench.c:test_chat_rules harness/test_sweep_suites.c:test_longbench_rows
answered 'an incomplete list of end tokens' 'those of config, generation config and tokenizer together' model/test_model.c:joins_eos_ids model/test_config.c:fills_in_defaults
answered 'code tasks: a blank first line, difflib or Levenshtein' 'code_sim as upstream; code_sim_skip_blank, code_sim_indel by name' tasks/test_longbench_scores.c:test_code_variants
answered 'the wrong ROUGE, 0 on Chinese, a crash on empty texts' 'the package upstream uses, its ties and sets' \
	tasks/test_longbench_scores.c:test_rouge_l tasks/test_longbench_scores.c:test_zh_metrics tasks/test_longbench_scores.c:test_jieba_rows
answered 'data sets behind scripts that are refused now' 'data.zip and jsonl themselves, at pinned revisions' \
	tasks/test_longbench.c:test_zip harness/test_hub_manifest.c:test_pins_are_upstreams_files harness/test_hub.c:test_files_by_pattern
answered 'middle truncation hides the answer, drops special tokens' 'tasks.truncate; what was cut is in the row, and a flag in the report' \
	tasks/test_longbench.c:test_cut_ids runners/test_runner.c:dropped_ids_are_left_out report/test_report.c:modes_variants_and_second_metrics
answered 'which maximal length?' 'the length is part of a cell; two lengths never share a table' results/test_store.c:identity_of_a_cell report/test_report.c:one_protocol_a_table
answered 'RULER: numbers of different templates and data versions' 'tasks.generator, tasks.release; both in the cell' \
	runners/test_ruler_golden.c:test_published runners/test_ruler_golden.c:test_multikey_3_bytes results/test_store.c:identity_of_a_task
answered 'RULER: a baseline near 0, or all methods alike' 'full and random in every sweep; r = 1 equals full; pruning is counted in the cache' \
	harness/test_sweep.c:test_pruning_that_did_not_take_place_fails runners/test_runner.c:r1_is_full_and_retained_is_as_asked \
	model/test_chat.c:sides_of_a_turn runners/test_prompts_golden.c:test_ruler
answered '"RULER" that is not RULER' "kvpress's and RULER's own rows are read; each result says which" \
	tasks/test_ruler.c:test_rows_of_kvpress tasks/test_ruler.c:test_rows_of_ruler report/test_report.c:modes_variants_and_second_metrics
answered 'RULER must be made anew for each tokenizer, for minutes' 'made while it runs: 13 x 500 rows in seconds' runners/test_ruler_golden.c:test_published runners/test_ruler_golden.c:test_long
answered 'room for the answer not counted, prompts cut in silence' "counted with the template's tokens; a row too long is refused" \
	tasks/test_ruler.c:test_upstream_lengths tasks/test_ruler.c:test_rows_refused runners/test_runner.c:beyond_max_positions_is_refused_without_allow_long
answered 'how are averages made?' 'each under its name, only of whole suites' tasks/test_longbench.c:test_averages report/test_report.c:averages_of_whole_suites
answered 'no resume' 'the same command goes on; kill -9 loses the sample in flight' e2e/kill_resume.sh harness/test_sweep.c:test_stopped_and_resumed_equals_one_go
answered 'regressions tested unpaired, with no interval, over dozens of cells' 'paired by sample, contexts resampled whole, exact p, Holm, a margin' \
	results/test_stats_oracle.c:paired results/test_stats_oracle.c:holm results/test_gate.c:matrix
answered 'a gate that measured nothing says "pass", or "regression"' 'exit 4; also when the baseline is gone, changed or not there' results/test_gate.c:an_empty_database e2e/gate.sh
answered 'false alarms of speed: other machines, other load' 'ratio to full in one process, by rounds; TTFT itself only on one quiet machine' \
	results/test_stats_oracle.c:speed_is_paired_by_round results/test_gate.c:matrix results/test_gate.c:false_alarms_and_power
answered 'when did the baseline move, and why?' 'by command only; its past stays in the history' results/test_store_more.c:baselines_keep_their_past e2e/gate.sh
answered 'two runs compared that saw other prompts' 'refused by hash; --force marks the output' results/test_compare.c:refusals_name_the_difference
answered 'stale caches; no scoring without inference' 'model, tokenizer, template, data by hash; kvbench score' \
	results/test_store.c:identity_of_a_cell model/test_model.c:hash_names_the_weights harness/test_sweep_suites.c:test_stored_answers_are_scored_anew e2e/score.sh
answered 'memory: logits of all positions, N x N masks' 'neither; out of memory is a row' runners/test_runner.c:too_long_for_memory_is_an_oom_row long_context.sh
answered 'aware or agnostic? prompt layouts, noise, a full cache below a pruned one' 'one protocol a table; intervals; a flag' \
	report/test_report.c:one_protocol_a_table report/test_report.c:golden_numbers_in_exports report/test_report.c:bad_methods_are_flagged methods/test_kvpress.c:sets_equal_kvpress_llama
answered 'SCBench: scorers and data do not match, golden or own answers, hard to plug into' "prompts and scores of upstream's code; golden history" \
	tasks/test_scbench.c:test_prompts tasks/test_scbench_metrics.c:test_fixture harness/test_sweep_suites.c:test_turns_follow_each_other methods/test_table.c:every_name_resolves
answered 'v2 moves by points; another metric under the same name' 'greedy and bit-equal; the metric stands in every table' \
	runners/test_runner.c:answers_do_not_depend_on_company tasks/test_longbench_scores.c:test_v2_published report/test_report.c:golden_numbers_in_exports

# failures of this field that nobody reported: each is planted in a test, and verify, the run or the report names it
V=harness/test_verify.c
answered 'silent: a counter never reset, only the first sample was pruned' 'counted in the cache of every sample' \
	$V:pruning_that_did_not_take_place harness/test_sweep.c:test_pruning_that_did_not_take_place_fails
answered 'silent: a scorer lost its cache after a rename and still ran' 'random pruning beside every method; below it: a flag' \
	$V:controls_and_rivals report/test_report.c:bad_methods_are_flagged
answered 'silent: ratio 1 scored 13.8, ratio .2 scored 35.2' 'r = 1 is the full cache, bit for bit; nothing is above it' \
	$V:full_cache_and_r1 $V:controls_and_rivals runners/test_runner.c:r1_is_full_and_retained_is_as_asked
answered 'silent: pruned tensors were printed, attention got the whole ones' 'entries and bytes counted where attention reads; random pruning must change answers' \
	$V:pruning_that_did_not_take_place runners/test_runner.c:r1_is_full_and_retained_is_as_asked
answered 'silent: no template, or one of two end tokens: a baseline of half its score' 'the full cache beside its published score; answers that run to the limit' \
	$V:full_cache_and_r1 model/test_model.c:joins_eos_ids
answered 'silent: prompts and stops a little off' "prompts byte for byte upstream's; equal for all methods" \
	$V:prompts_and_state runners/test_prompts_golden.c:test_ruler tasks/test_scbench.c:test_prompts
answered 'silent: contexts shorter than the window: answers degenerate, or nothing pruned' 'not applicable, or a flag: no score' \
	$V:pruning_that_did_not_take_place $V:scores_and_completeness report/test_report.c:bad_methods_are_flagged
answered 'silent: all scores near 0: cut prompts, template arguments' 'cut, empty and 0 are counted and told' $V:full_cache_and_r1 $V:prompts_and_state
answered 'silent: caches with too loose a key' 'rows are named by the hash of all that changes an answer' \
	$V:identity_and_versions results/test_store.c:identity_of_a_cell harness/test_sweep.c:test_stopped_and_resumed_equals_one_go
answered 'silent: cached prompts replayed: first tokens 49 times too soon' 'every repetition prefills everything, or its row is refused' \
	$V:times_that_cannot_be harness/test_sweep.c:test_a_timing_that_cannot_be_true_is_not_stored
for o in truncate generator release mode templates; do option $o && echo "ok - the option tasks.$o is there" || echo "not ok - the option tasks.$o is there"; done
