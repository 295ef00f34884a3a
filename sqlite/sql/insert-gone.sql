-- Records where the chain of a deleted resource starts.
INSERT INTO gone (key, seq) VALUES (?1, ?2);
