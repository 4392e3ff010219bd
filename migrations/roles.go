package migrations

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// DefaultPrefix is the prefix of the roles' names, unless the caller of [Roles] has another.
const DefaultPrefix = "kagzi"

//go:embed roles/roles.sql
var rolesScript string

// A prefix needs no quotes in SQL, and leaves room for "_worker" in a name, which has at most 63 bytes.
var validPrefix = regexp.MustCompile(`^[a-z][a-z0-9_]{0,54}$`)

// Roles returns a script that creates three roles of the database and grants them what they need: kagzi_worker executes
// runs and does the housekeeping, kagzi_client starts and changes runs, kagzi_viewer reads. Another prefix than
// [DefaultPrefix] makes other names, because the databases of a server share their roles. The script's head says who
// sends it, and when. It may be sent again at any time.
//
// Roles returns an error if the prefix has anything but small letters, digits and underscores, or more than 55 of them.
func Roles(prefix string) (string, error) {
	if !validPrefix.MatchString(prefix) {
		return "", fmt.Errorf("kagzi: the roles' prefix is %q: give a letter and then at most 54 small letters, "+
			"digits and underscores", prefix)
	}
	var names []string
	for _, role := range []string{"_worker", "_client", "_viewer"} {
		names = append(names, DefaultPrefix+role, prefix+role)
	}
	return strings.NewReplacer(names...).Replace(rolesScript), nil
}
