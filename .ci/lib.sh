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
	command -v g++ >/dev/null || missing+=(g++)
	command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
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

# The oldest Go that a service may have, in its newest patch; all else here runs
# with the release after it.
oldest_go=go1.25.14

# The library is recorded with wherever services run, and read on Linux alone:
# elsewhere its tests must link, and on arm64 they run, as far as qemu-user has the
# system calls. (go test -exec true links every test and runs none.)
check_portable() {
	local target
	for target in darwin/arm64 windows/amd64 freebsd/amd64 linux/arm64; do
		printf '%s\n' "$target"
		(cd rpcprof && export GOOS=${target%/*} GOARCH=${target#*/} && go vet ./... && (cd debug && go vet ./...) && go test -count 1 -exec true ./... >/dev/null)
	done
	(cd rpcprof && GOARCH=arm64 go test -timeout 5m -exec qemu-aarch64-static ./...)
	printf '%s, besides %s\n' "$oldest_go" "$(go env GOVERSION)"
	(cd rpcprof && GOTOOLCHAIN=$oldest_go go test -timeout 5m ./...)
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
