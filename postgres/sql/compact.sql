-- Makes a change the oldest one. The change is looked up again, because the database may have been replaced since it was read.
update {{schema}}.store set oldest = $1
where oldest < $1 and exists (select from {{schema}}.changes where revision = $1 and place = $2 and substr(token, 1, 8) = $3)
