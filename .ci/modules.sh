# Sourced by .ci/run and .ci/test, in the repository's folder.

# `go test ./...` omits folders with a go.mod of their own. Each of them is a module to test. bench/temporal is Temporal's server for the
# benchmark: it has no tests, two hundred dependencies, and takes minutes to build. The long tests of bench build it.
modules() {
	local file
	find . -name go.mod -not -path './.majors/*' -not -path './.tools/*' -not -path './bench/temporal/*' -not -path '*/node_modules/*' -not -path '*/testdata/*' |
		sort | while read -r file; do dirname "$file"; done
}

each_module() { # command…
	local dir
	while read -r dir; do
		if [[ $dir != . ]]; then echo "in $dir"; fi
		(cd "$dir" && "$@" </dev/null) # otherwise the command could read the list
	done < <(modules)
}
