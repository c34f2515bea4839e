#!/bin/bash
# Five fixed mutants of the backend, each of which must be noticed (mutants.sh).
exec "$(dirname "$0")/mutants.sh" fixed
