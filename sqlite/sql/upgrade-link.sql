-- Stores the chain entry of one old row.
INSERT INTO links (seq, created, writes, prev, jump, step, leap) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);
