-- Deletes the changes that a range of changes makes superfluous: each change its predecessor, and a deletion also itself. The
-- last change of a stored resource remains.
delete from {{schema}}.changes where ctid = any (array(
    select earlier.ctid
    from {{schema}}.changes change cross join lateral (
        select ctid from {{schema}}.changes where revision = change.previous and place = change.previous_place offset 0
    ) as earlier
    where change.revision between $1 and $2
    union all
    select ctid from {{schema}}.changes where revision between $1 and $2 and revision < $3 and op = 2
))
