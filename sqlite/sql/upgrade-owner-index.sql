-- Replaces the index of owners of an early version 2 by one that covers its query. Programs that have the store open continue.
DROP INDEX IF EXISTS resources_by_owner;
CREATE INDEX resources_owned ON resources (owner, key, uid, group_version) WHERE owner IS NOT NULL;
