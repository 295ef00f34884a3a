-- Rows in the order of keys, bounded by rows and by bytes.
select key, version, data
from (
    select key, version, data, sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
    from (select key, version, data from {{schema}}.resources where key > {{primary "$1::bytea"}} order by key limit $2) as many
) as page
where before < $3
