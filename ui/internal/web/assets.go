package web

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// assets are the static files. Their addresses contain a hash of their contents, so that browsers keep them.
type assets struct {
	data map[string][]byte
	hash map[string]string
}

// newAssets returns those of the folder static.
func newAssets(embedded fs.FS) *assets {
	f := &assets{map[string][]byte{}, map[string]string{}}
	// embedded files can be read
	_ = fs.WalkDir(embedded, "static", func(name string, _ fs.DirEntry, _ error) error {
		if types[path.Ext(name)] == "" {
			return nil
		}
		data, err := fs.ReadFile(embedded, name)
		sum := sha256.Sum256(data)
		name = strings.TrimPrefix(name, "static/")
		f.data[name], f.hash[name] = data, hex.EncodeToString(sum[:6])
		return err
	})
	return f
}

// types are the sorts of files that are served. Licences and notes are not.
var types = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// path returns the path of a file below the dashboard's path.
func (f *assets) path(name string) string { return "static/" + f.hash[name] + "/" + name }

// serve answers with a file. They are the same for all viewers, so Authorize is not asked.
func (f *assets) serve(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	data, ok := f.data[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", types[path.Ext(name)])
	if r.PathValue("hash") == f.hash[name] { // else another version of the program made the page
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(data) // the browser may have gone
}
