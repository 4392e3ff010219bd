package web

import (
	"net/http"
	"path"
	"strings"
)

// sameSite refuses the changes that a page of another site has asked for. A browser of before 2020 does not say whose
// page that was: neither may be.
func sameSite(next http.Handler, fail func(http.ResponseWriter, *http.Request, Viewer, error)) http.Handler {
	csrf := http.NewCrossOriginProtection()
	csrf.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, Viewer{}, Status(http.StatusForbidden, "This change was asked for by a page of another site, so "+
			"it was refused."))
	}))
	checked := csrf.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		if !reads && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" {
			fail(w, r, Viewer{}, Status(http.StatusForbidden, "This change was refused, because the request does "+
				"not say which page has asked for it (Sec-Fetch-Site or Origin). Browsers since 2020 do."))
			return
		}
		checked.ServeHTTP(w, r)
	})
}

// clean redirects requests for paths such as "/kagzi//runs" as the mux would, but to below base.
func clean(base string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.EscapedPath()
		cleaned := path.Clean("/" + asked)
		if strings.HasSuffix(asked, "/") && cleaned != "/" {
			cleaned += "/"
		}
		if cleaned == asked {
			next.ServeHTTP(w, r)
			return
		}
		if r.URL.RawQuery != "" {
			cleaned += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", strings.TrimSuffix(base, "/")+cleaned)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
}
