# Sourced by .ci/run and .ci/test, in the repository's folder.

# `go test ./...` omits folders with a go.mod of their own. Each of them is a module to test.
modules() {
	local file
	find . -name go.mod -not -path './.majors/*' -not -path './.tools/*' -not -path '*/node_modules/*' -not -path '*/testdata/*' |
		sort | while read -r file; do dirname "$file"; done
}

each_module() { # command…
	local dir
	while read -r dir; do
		if [[ $dir != . ]]; then echo "in $dir"; fi
		(cd "$dir" && "$@" </dev/null) # otherwise the command could read the list
	done < <(modules)
}
