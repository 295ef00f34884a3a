-- Records the progress of pruning.
update {{schema}}.store set pruned = least($1::bigint + 1, oldest) where pruned <= $1
