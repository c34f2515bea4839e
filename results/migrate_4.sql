-- From version 3 to 4. Steps are history: never edited once a release had them (schema.sql holds the tables of today).
-- One more part of a topology: attention by cuDNN. As in step 3 the CHECK is edited where it stands.
PRAGMA writable_schema=ON;
UPDATE sqlite_master SET sql = replace(sql, 'replace(replace(topology, ''emulated-'', ''''), ''+offload'', '''')',
	'replace(replace(replace(topology, ''emulated-'', ''''), ''+offload'', ''''), ''+cudnn'', '''')')
	WHERE type = 'table' AND name = 'cell';
PRAGMA writable_schema=RESET;
