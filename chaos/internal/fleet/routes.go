package fleet

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"sync"
)

// Databases are the names of the databases of a round in which namespaces move. The server has the first one from the
// beginning.
var Databases = [2]string{"first", "second"}

// DSNs returns the DSNs of both, given that of the first.
func DSNs(first string) []string {
	u, err := url.Parse(first)
	if err != nil {
		return []string{first, first} // never: it comes from localpg
	}
	u.Path = "/" + Databases[1]
	return []string{first, u.String()}
}

// Namespaces are those of such a round. The first one never moves.
var Namespaces = []string{"default", "tenant 1", "tenant 2", "tenant 3"}

// Routes say in which database each namespace is. Worker processes read them from a file.
type Routes struct {
	file string

	mu    sync.Mutex
	at    map[string]int // as an index of Databases
	taken map[string]bool
}

// NewRoutes returns routes to both databases, with their file in dir.
func NewRoutes(dir string) (*Routes, error) {
	r := &Routes{file: routesFile(dir), at: map[string]int{}, taken: map[string]bool{}}
	for i, namespace := range Namespaces {
		r.at[namespace] = i % len(Databases)
	}
	return r, r.write()
}

func routesFile(dir string) string { return filepath.Join(dir, "routes.json") }

func (r *Routes) write() error {
	text, err := json.Marshal(r.at)
	if err == nil {
		err = os.WriteFile(r.file+".new", text, 0o600)
	}
	if err != nil {
		return err
	}
	return os.Rename(r.file+".new", r.file)
}

// Of returns the database of a namespace, as an index of Databases. Nil routes lead to the first one.
func (r *Routes) Of(namespace string) int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[namespace]
}

// Set says that a namespace is in another database.
func (r *Routes) Set(namespace string, at int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[namespace] = at
	return r.write()
}

// Take reports whether no one else had taken the namespace, and takes it until release is called.
func (r *Routes) Take(namespace string) (release func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken[namespace] {
		return nil, false
	}
	r.taken[namespace] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.taken, namespace)
	}, true
}

// Route returns the name of the database in which a namespace is, as the file in dir says.
func Route(dir, namespace string) string {
	text, err := os.ReadFile(routesFile(dir))
	at := map[string]int{}
	if err != nil || json.Unmarshal(text, &at) != nil {
		return ""
	}
	if i, ok := at[namespace]; ok {
		return Databases[i]
	}
	return ""
}
