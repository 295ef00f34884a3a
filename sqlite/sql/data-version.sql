-- Changes when another connection commits, so a poll of the file costs no read of the log.
PRAGMA data_version;
