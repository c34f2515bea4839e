-- From version 2 to 3. Steps are history: never edited once a release had them (schema.sql holds the tables of today).
-- More topologies: what is stored does not change, and rows of four tables refer to cell, so its CHECK is edited where it stands.
PRAGMA writable_schema=ON;
UPDATE sqlite_master SET sql = replace(sql, 'CHECK (topology IN (''cpu'', ''gpu'', ''shared'', ''dual''))',
	'CHECK (replace(replace(topology, ''emulated-'', ''''), ''+offload'', '''') IN (''cpu'', ''gpu'', ''shared'', ''dual'', ''proxy-cpu'', ''proxy-gpu''))')
	WHERE type = 'table' AND name = 'cell';
PRAGMA writable_schema=RESET;

ALTER TABLE sample ADD COLUMN oom_free_bytes INTEGER;

CREATE TABLE timing_fact (
	cell_id TEXT NOT NULL REFERENCES cell, run_id TEXT NOT NULL REFERENCES run,
	name TEXT NOT NULL CHECK (name IN ('prefill_floor_ns', 'second_pass_floor_ns', 'waited_ppm')),
	value INTEGER NOT NULL CHECK (value >= 0),
	PRIMARY KEY (cell_id, run_id, name)
) STRICT, WITHOUT ROWID;
