-- The sizes of the rows after another one. The length of a blob is at the beginning of its row, so the pages of the
-- blob are not read.
SELECT seq, length(data) FROM log WHERE seq > ?1 ORDER BY seq;
