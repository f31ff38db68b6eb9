# Shared by run and full; sourced, from the top of the checkout.
bin=$(mktemp -d)/rpcprof
trap 'rm -rf "$(dirname "$bin")"' EXIT

step() { printf '== %s\n' "$1"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

install_tools() {
	local missing=()
	command -v clang-19 >/dev/null || missing+=(clang-19)
	command -v llvm-strip-19 >/dev/null || missing+=(llvm-19)
	[ -f /usr/include/bpf/bpf_helpers.h ] || missing+=(libbpf-dev)
	command -v gcc >/dev/null || missing+=(gcc libc6-dev)
	command -v jq >/dev/null || missing+=(jq)
	if [ ${#missing[@]} -gt 0 ]; then
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
	fi
}

# What is generated is committed; generating it again must change nothing.
check_generated() {
	go generate work
	git diff --exit-code --stat -- probes/bpf dashboards || fail "generated files differ from what is committed: run go generate work"
}

# Runs one fault and compares the first verdict with what was injected.
short_demo() {
	local fault=$1 for=${2:-4s} out want
	[ -x "$bin" ] || go build -o "$bin" ./cmd/rpcprof
	case $fault in
	none) want='[]' ;;
	lock) want='"handler/go.lock"' ;;
	pool) want='"queue/behind"' ;;
	inline) want='"recv/behind"' ;;
	hog) want='runq' ;;
	sleep) want='"handler/go.sleep"' ;;
	disk) want='"handler/block.disk"' ;;
	esac
	out=$("$bin" demo --fault "$fault" --for "$for" --json)
	got=$(jq -c 'if .verdicts == [] then [] else .verdicts[0].stage + "/" + .verdicts[0].cause end' <<<"$out")
	printf '%-7s %s\n' "$fault" "$(jq -r '.verdicts[0].sentence // "nothing stands out"' <<<"$out")"
	case $got in *"${want//\"/}"* | "$want") ;; *) fail "demo --fault $fault: first verdict is $got, not $want" ;; esac
}

fuzz_all() {
	local pkg f
	for pkg in $(go list work); do
		for f in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
			printf '%s %s\n' "$pkg" "$f"
			go test -run xxx -fuzz "^$f\$" -fuzztime "$1" "$pkg" >/dev/null
		done
	done
}
