-- The same as final. It also saves the number up to which the history is final in the setting ashlar.final, for the next
-- statement of the transaction.
select last, noted, standby, set_config('ashlar.final', least(last, noted)::text, true) from ({{template "final"}} offset 0) as final (last, noted, standby)
