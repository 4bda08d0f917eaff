BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL);
INSERT INTO "alembic_version" VALUES('2903cd72dc14');
CREATE TABLE compute_nodes (
	id INTEGER NOT NULL, 
	uuid VARCHAR(36), 
	host VARCHAR(255), 
	hypervisor_hostname VARCHAR(255), 
	pci_stats TEXT, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted INTEGER, 
	PRIMARY KEY (id)
);
INSERT INTO "compute_nodes" VALUES(2,'node-old','old','old',NULL,NULL,'2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "compute_nodes" VALUES(3,'node-orphan','orphan','orphan',NULL,NULL,'2026-11-24 06:13:39.000000','2026-11-24 05:13:39.000000',3);
INSERT INTO "compute_nodes" VALUES(5,'node-up','up','up',NULL,NULL,'2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "compute_nodes" VALUES(7,'node-stopped','stopped','stopped',NULL,NULL,'2026-11-24 06:13:39.000000',NULL,0);
CREATE TABLE instance_extra (
	id INTEGER NOT NULL, 
	instance_uuid VARCHAR(36), 
	pci_requests TEXT, 
	migration_context TEXT, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted INTEGER, 
	PRIMARY KEY (id)
);
INSERT INTO "instance_extra" VALUES(9,'vm-a','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instance_extra" VALUES(11,'vm-b','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instance_extra" VALUES(13,'vm-bd','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instance_extra" VALUES(15,'vm-c','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instance_extra" VALUES(17,'vm-d','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instance_extra" VALUES(19,'vm-v','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instance_extra" VALUES(21,'vm-g','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instance_extra" VALUES(23,'vm-f','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instance_extra" VALUES(43,'vm-i','[{"count": 1, "alias_name": "k4200", "request_id": "r1", "spec": []}]',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
CREATE TABLE instances (
	id INTEGER NOT NULL, 
	uuid VARCHAR(36), 
	host VARCHAR(255), 
	node VARCHAR(255), 
	vm_state VARCHAR(255), 
	task_state VARCHAR(255), 
	display_name VARCHAR(255), 
	cleaned INTEGER, 
	hidden BOOLEAN, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted INTEGER, 
	PRIMARY KEY (id)
);
INSERT INTO "instances" VALUES(8,'vm-a','new','new','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instances" VALUES(10,'vm-b','new','new','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instances" VALUES(12,'vm-bd','new','new','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instances" VALUES(14,'vm-c','new','new','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instances" VALUES(16,'vm-d','new','new','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instances" VALUES(18,'vm-v','new','new','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instances" VALUES(20,'vm-g','new','new','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instances" VALUES(22,'vm-f','stopped','stopped','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "instances" VALUES(42,'vm-i','stopped','stopped','active',NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
CREATE TABLE migrations (
	id INTEGER NOT NULL, 
	uuid VARCHAR(36), 
	instance_uuid VARCHAR(36), 
	source_compute VARCHAR(255), 
	source_node VARCHAR(255), 
	dest_compute VARCHAR(255), 
	dest_node VARCHAR(255), 
	status VARCHAR(255), 
	migration_type VARCHAR(16), 
	cross_cell_move BOOLEAN, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted INTEGER, 
	PRIMARY KEY (id)
);
INSERT INTO "migrations" VALUES(26,NULL,'vm-b','up','up','new','new','error','migration',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "migrations" VALUES(28,NULL,'vm-bd','old','old','new','new','error','migration',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
CREATE TABLE pci_devices (
	id INTEGER NOT NULL, 
	uuid VARCHAR(36), 
	compute_node_id INTEGER, 
	address VARCHAR(12), 
	vendor_id VARCHAR(4), 
	product_id VARCHAR(4), 
	dev_type VARCHAR(8), 
	dev_id VARCHAR(255), 
	label VARCHAR(255), 
	status VARCHAR(36), 
	request_id VARCHAR(36), 
	extra_info TEXT, 
	instance_uuid VARCHAR(36), 
	numa_node INTEGER, 
	parent_addr VARCHAR(12), 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted INTEGER, 
	PRIMARY KEY (id)
);
INSERT INTO "pci_devices" VALUES(24,'00000024-0000-4000-8000-000000000000',2,'0000:01:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','available',NULL,NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 07:13:40.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(25,'00000025-0000-4000-8000-000000000000',5,'0000:01:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','allocated','x',NULL,'vm-b',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(27,'00000027-0000-4000-8000-000000000000',2,'0000:02:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','allocated','x',NULL,'vm-bd',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(29,'00000029-0000-4000-8000-000000000000',3,'0000:01:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','allocated','x',NULL,'vm-c',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(30,'00000030-0000-4000-8000-000000000000',2,'0000:03:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','allocated','x',NULL,'vm-d',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000','2026-11-24 06:13:39.000000',30);
INSERT INTO "pci_devices" VALUES(31,'00000031-0000-4000-8000-000000000000',2,'0000:04:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','allocated','x',NULL,'gone',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(32,'00000032-0000-4000-8000-000000000000',2,'0000:05:00.0','10de','11b4','type-PF',NULL,'label_10de_11b4','available',NULL,NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 07:13:40.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(33,'00000033-0000-4000-8000-000000000000',2,'0000:05:00.1','10de','11b4','type-VF',NULL,'label_10de_11b4','available',NULL,NULL,NULL,NULL,'0000:05:00.0','2026-11-23 06:13:39.000000','2026-11-24 07:13:40.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(34,'00000034-0000-4000-8000-000000000000',2,'0000:06:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','claimed','x',NULL,'vm-g',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(35,'00000035-0000-4000-8000-000000000000',7,'0000:01:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','allocated','r1',NULL,'vm-f',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(36,'00000036-0000-4000-8000-000000000000',7,'0000:06:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','claimed','x',NULL,'vm-f',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(37,'00000037-0000-4000-8000-000000000000',7,'0000:02:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','allocated','x',NULL,'vm-f',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(38,'00000038-0000-4000-8000-000000000000',7,'0000:03:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','unavailable',NULL,NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(39,'00000039-0000-4000-8000-000000000000',7,'0000:04:00.0','10de','11b4','type-PCI',NULL,'label_10de_11b4','available',NULL,NULL,'vm-f',NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(40,'00000040-0000-4000-8000-000000000000',7,'0000:05:00.0','10de','11b4','type-PF',NULL,'label_10de_11b4','available',NULL,NULL,NULL,NULL,NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "pci_devices" VALUES(41,'00000041-0000-4000-8000-000000000000',7,'0000:05:00.1','10de','11b4','type-VF',NULL,'label_10de_11b4','allocated','r1',NULL,'vm-i',NULL,'0000:05:00.0','2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
CREATE TABLE services (
	id INTEGER NOT NULL, 
	host VARCHAR(255), 
	binary VARCHAR(255), 
	disabled BOOLEAN, 
	forced_down BOOLEAN, 
	last_seen_up DATETIME, 
	report_count INTEGER, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted INTEGER, 
	PRIMARY KEY (id)
);
INSERT INTO "services" VALUES(1,'old','nova-compute',0,0,'2026-11-14 07:13:39.000000',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "services" VALUES(4,'up','nova-compute',0,0,'2026-11-24 07:13:38.000000',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "services" VALUES(6,'stopped','nova-compute',0,0,'2026-11-14 07:13:39.000000',NULL,'2026-11-23 06:13:39.000000','2026-11-24 06:13:39.000000',NULL,0);
INSERT INTO "services" VALUES(999999,'controller','nova-conductor',NULL,NULL,'2026-11-24 07:14:24.000000',NULL,NULL,NULL,NULL,0);
-- A column of Nova that 0.1.0 did not read.
ALTER TABLE compute_nodes ADD COLUMN service_id INTEGER;
COMMIT;
