-- Records how far the log is pruned, for the next transaction of any process.
UPDATE meta SET pruned = max(pruned, ?1);
