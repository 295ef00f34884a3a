-- Whether the time of an attempt without a lock has passed. An attempt that starts later compares with the same clock.
select {{primary "clock_timestamp() > $1"}}
