#!/bin/bash
# The demo: the plan in harness/demo.json on the embedded model; prints the summary table, writes results/demo.db and results/demo.html.
# Run again, it resumes: what is in results/demo.db is not measured twice. `rm results/demo.db` starts afresh.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -e results/demo.db ]; then
	echo "results/demo.db exists: resuming (rm results/demo.db to start afresh)" >&2
fi
./kvbench run harness/demo.json
echo "results/demo.html: the report; ./kvbench status results/demo.db: the cells" >&2
