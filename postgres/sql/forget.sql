-- Deletes old revocations. An attempt that is this late fails by its time, unless the clock has stepped back by as much.
delete from {{schema}}.revoked where taken < clock_timestamp() - interval '1 day'
