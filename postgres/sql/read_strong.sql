-- The resource of a key, and the fence. If the row does not prove that no lower number is pending for it, the third column is the tip.
select resource.version, resource.data, case when {{template "clean" false}} then null else {{template "proven_tip_from" 2}} end, {{template "fence"}}
from (select {{primary "$1::bytea"}} as key) as wanted left join {{schema}}.resources resource using (key)
