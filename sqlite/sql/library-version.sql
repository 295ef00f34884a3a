-- The version of SQLite, because older ones can corrupt the file.
SELECT sqlite_version();
