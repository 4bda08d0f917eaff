BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32));
INSERT INTO "alembic_version" VALUES('cdeec0c85668');
CREATE TABLE cell_mappings (id INTEGER PRIMARY KEY, uuid TEXT, name TEXT, transport_url TEXT, database_connection TEXT, disabled BOOLEAN);
INSERT INTO "cell_mappings" VALUES(1,'11111111-1111-1111-1111-111111111111','cell1','none:///','sqlite:////place/cell.sqlite',0);
CREATE TABLE instance_mappings (id INTEGER PRIMARY KEY, instance_uuid TEXT, cell_id INTEGER);
COMMIT;
