#!/usr/bin/env bash
# Draws docs/assets/architecture.svg, the picture in README.md: docs/assets/architecture.sh > docs/assets/architecture.svg
set -euo pipefail

# row Y HEIGHT FILL BOX...: boxes of equal width side by side. A box is "title|line|line".
row() {
	local y=$1 height=$2 fill=$3 x=20 gap=12 width
	shift 3
	width=$(((920 - gap * ($# - 1)) / $#))
	for box in "$@"; do
		IFS='|' read -ra lines <<<"$box"
		printf '<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="#8aa0b6"/>\n' "$x" "$y" "$width" "$height" "$fill"
		local text_y=$((y + height / 2 + 5 - 9 * (${#lines[@]} - 1))) weight=600
		for line in "${lines[@]}"; do
			printf '<text x="%d" y="%d" font-weight="%d">%s</text>\n' $((x + width / 2)) "$text_y" "$weight" "$line"
			text_y=$((text_y + 18)) weight=400
		done
		x=$((x + width + gap))
	done
}

# arrows Y COUNT: an arrow below each of COUNT boxes.
arrows() {
	local y=$1 count=$2 width i
	width=$(((920 - 12 * (count - 1)) / count))
	for ((i = 0; i < count; i++)); do
		printf '<path d="M%d %dv16" stroke="#5b7083" fill="none" marker-end="url(#arrow)"/>\n' $((20 + i * (width + 12) + width / 2)) "$y"
	done
}

cat <<'EOF'
<svg xmlns="http://www.w3.org/2000/svg" width="960" height="520" viewBox="0 0 960 520" font-family="sans-serif" font-size="13" text-anchor="middle" role="img">
<title>Programs use libraries and servers, which use storage.Backend, which five adapters implement</title>
<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="5" refY="4" orient="auto"><path d="M0 0L6 4L0 8z" fill="#5b7083"/></marker></defs>
<rect width="960" height="520" fill="#ffffff"/>
<g fill="#1f2d3a">
EOF
row 20 62 '#f3f6f9' 'kube-apiserver|etcdctl, Patroni' 'clients of Consul|gRPC, curl' 'your control plane|in Go' 'operators|ashlar'
arrows 84 4
row 106 82 '#e3eef9' 'etcdserver|etcd’s API v3' 'service|typed resources, hooks|registry, reaper, web' 'libraries|typed, typed/tables|cache, lease' 'cmd/ashlar|serve, apply, watch, top|migrate, conformance'
arrows 190 4
row 212 62 '#cfe3f6' 'storage.Backend|compare-and-swap writes, lists, ordered watches, owner references, transactions, history'
arrows 276 1
row 298 62 '#e3eef9' 'driver/backend|written once for all adapters: checks, deadlines, pages, one feed for all watches'
arrows 362 5
row 384 116 '#eef5ea' 'inmem|trees in the process|the reference' 'sqlite|one durable file|several processes|of one machine' 'postgres|row versions|a change log|LISTEN/NOTIFY' 'etcd|mod-revision compare|native watches' 'dynamodb|conditional writes|transactions|streams'
printf '</g>\n</svg>\n'
