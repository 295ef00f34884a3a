-- Changes the schema, so that every prepared statement is compiled again, which shows its connection that the fence has changed.
CREATE TABLE fence_changed (id INTEGER);
DROP TABLE fence_changed;
