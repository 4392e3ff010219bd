package localpg

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// programDirs returns the directories where installers put Postgres without adding them to PATH: for each installer,
// the newest version first.
func programDirs() []string {
	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Alpine
		"/usr/pgsql-*/bin",          // the PostgreSQL project's RPMs
		"/usr/local/pgsql/bin",      // built from source
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return compareVersions(b, a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// compareVersions orders paths by the first number in which they differ, so that 9.6 comes before 15.
func compareVersions(a, b string) int {
	isDigit := func(r rune) bool { return '0' <= r && r <= '9' }
	isOther := func(r rune) bool { return !isDigit(r) }
	as, bs := strings.FieldsFunc(a, isOther), strings.FieldsFunc(b, isOther)
	return slices.CompareFunc(as, bs, func(x, y string) int {
		return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	})
}

// findPrograms returns the directory that holds initdb and postgres, and the version that postgres reports. If
// KAGZI_PG_BIN names a directory, it searches no other: a user who asks for one version does not want another.
func findPrograms(getenv func(string) string, dirs []string) (dir, version string, err error) {
	if named := getenv("KAGZI_PG_BIN"); named != "" {
		dir, version, err := checkPrograms(named)
		if err != nil {
			return "", "", fmt.Errorf("localpg: KAGZI_PG_BIN=%s: %w", named, err)
		}
		return dir, version, nil
	}
	var candidates []string
	if path, err := exec.LookPath("postgres"); err == nil {
		candidates = append(candidates, filepath.Dir(path))
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, string(bytes.TrimSpace(out)))
	}
	candidates = append(candidates, dirs...)
	var tried []error
	for _, candidate := range candidates {
		dir, version, err := checkPrograms(candidate)
		if err == nil {
			return dir, version, nil
		}
		tried = append(tried, fmt.Errorf("%s: %w", candidate, err))
	}
	return "", "", fmt.Errorf("localpg: Postgres is not installed (no initdb and postgres found); install it "+
		"with\n\n\t%s\n\n"+
		"or set KAGZI_PG_BIN to the folder of its programs: %w", installCommand(),
		errors.Join(append(tried, errNoPrograms)...))
}

// errNoPrograms says where findPrograms has searched.
var errNoPrograms = errors.New("looked at $KAGZI_PG_BIN, $PATH, pg_config --bindir and the usual places")

// checkPrograms returns the directory of the programs in dir, after links, and their version. It fails if they do not
// work.
func checkPrograms(dir string) (resolved, version string, err error) {
	path, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return "", "", err
	}
	resolved = filepath.Dir(path)
	if _, err := os.Stat(filepath.Join(resolved, "initdb")); err != nil {
		// dir may hold wrappers, which find the real programs by themselves.
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
			return "", "", err
		}
		resolved = dir
	}
	out, err := exec.Command(filepath.Join(resolved, "postgres"), "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("postgres --version: %w", err)
	}
	return resolved, string(bytes.TrimSpace(out)), nil
}

// installCommand returns the command that installs Postgres on this system.
func installCommand() string {
	sudo := "sudo "
	if os.Geteuid() == 0 {
		sudo = ""
	}
	for _, manager := range []struct{ program, command string }{
		{"/opt/homebrew/bin/brew", "brew install postgresql@17"},
		{"/usr/local/bin/brew", "brew install postgresql@17"},
		{"/usr/bin/apt-get", sudo + "apt-get install -y postgresql"},
		{"/usr/bin/dnf", sudo + "dnf install -y postgresql-server"},
		{"/sbin/apk", sudo + "apk add postgresql"},
		{"/usr/bin/pacman", sudo + "pacman -S --noconfirm postgresql"},
		{"/usr/bin/zypper", sudo + "zypper install -y postgresql-server"},
	} {
		if _, err := os.Stat(manager.program); err == nil {
			return manager.command
		}
	}
	if runtime.GOOS == "darwin" {
		return "brew install postgresql@17"
	}
	return "your system's package manager (package postgresql or postgresql-server)"
}
