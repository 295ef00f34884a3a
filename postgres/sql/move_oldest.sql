-- Makes the newest mark that is old enough the oldest change at which the store can be read. That change remains, because
-- positions at it prove themselves by it. The newest due mark remains until a newer one is due. Several marks may have the same
-- number if nothing changes.
with due as materialized (
    select revision, taken from {{schema}}.marks where taken < clock_timestamp() - make_interval(secs => $1) order by taken desc limit 1
), moved as (
    update {{schema}}.store set oldest = due.revision from due where oldest < due.revision
), dropped as (
    delete from {{schema}}.marks as mark using due where mark.taken < due.taken
)
select revision from due
