package web

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
)

// templates render the pages.
type templates struct {
	byPage map[string]*template.Template // each with the layout and the partials
	data   func(*Screen) any             // what a template gets
	log    *slog.Logger
}

// parse parses the layout with each page.
func (t *templates) parse(files fs.FS, funcs template.FuncMap) error {
	shared, err := template.New("").Funcs(funcs).ParseFS(files, "templates/layout.html", "templates/partials.html",
		"templates/partials/*.html")
	if err != nil {
		return err
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return err
	}
	t.byPage = map[string]*template.Template{}
	for _, name := range names {
		if name == "templates/layout.html" || name == "templates/partials.html" {
			continue
		}
		page, err := template.Must(shared.Clone()).ParseFS(files, name)
		if err != nil {
			return err
		}
		t.byPage[strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".html")] = page
	}
	return nil
}

// page writes the page. A mistake in a template is a bug: the answer says so, rather than half a page.
func (t *templates) page(w http.ResponseWriter, code int, name string, s *Screen) {
	var page bytes.Buffer
	found, ok := t.byPage[name]
	err := fmt.Errorf("there is no template %q", name)
	if ok {
		err = found.ExecuteTemplate(&page, "layout", t.data(s))
	}
	if err != nil {
		t.log.Error("kagzi: the dashboard cannot show a page", "template", name, "err", err)
		http.Error(w, "This page has a bug. The program's log says more.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Add("Vary", "Accept")
	w.WriteHeader(code)
	_, _ = w.Write(page.Bytes()) // the browser may have gone
}

// region writes a live region of a page.
func (t *templates) region(to *bytes.Buffer, p Page, name string, s *Screen) error {
	return t.byPage[p.file()].ExecuteTemplate(to, name, t.data(s))
}
