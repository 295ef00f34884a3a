-- Moves the lower bounds of history to a row, never back.
UPDATE meta SET followed = max(followed, ?1), horizon = max(horizon, ?1);
