# Prints the output of Kubernetes' benchmarks, and after it how many times as fast as the storage in etcd each of ours was: the median of
# the rounds.
{ print; fflush() }
# What a program logs may stand between the name of a benchmark and what came of it.
/^BenchmarkUpstream/ && $4 != "ns/op" { name = $1; next }
/^ *[0-9]+\t.* ns\/op/ { $0 = name " " $0 }
/^BenchmarkUpstream/ {
	parts = split($1, part, "/")
	sub(/-[0-9]+$/, "", part[parts])
	sub(/UseIndex=false$/, "", part[parts])
	what = part[1]
	sub(/^BenchmarkUpstream/, "", what)
	for (i = 4; i <= parts; i++) if (part[i] != "") what = what "/" part[i]
	if (!(what in known)) { known[what]; order[++whats] = what }
	if (!(part[3] in side)) { side[part[3]]; sides[++count] = part[3] }
	if (!(part[2] in round)) { round[part[2]]; rounds[++turns] = part[2] }
	# Of the writes of many, the time of an operation has the end of what runs beside them in it: their rate has not.
	rate[part[2], part[3], what] = 1 / $3
	for (i = 5; i < NF; i++) if ($(i + 1) == "writes/s") rate[part[2], part[3], what] = $i
}
END {
	for (s = 1; s <= count; s++) for (w = 1; w <= whats; w++) {
		if (sides[s] == "etcd") continue
		n = 0
		for (r = 1; r <= turns; r++) {
			ours = rate[rounds[r], sides[s], order[w]]; theirs = rate[rounds[r], "etcd", order[w]]
			if (!(ours > 0 && theirs > 0)) continue
			value = ours / theirs
			for (i = ++n; i > 1 && sorted[i - 1] > value; i--) sorted[i] = sorted[i - 1]
			sorted[i] = value
		}
		if (n > 0) printf "ratio kubernetes-%s/%s %.2f\n", sides[s], order[w], sorted[int((n + 1) / 2)]
	}
}
