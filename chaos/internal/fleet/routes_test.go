package fleet

import "testing"

// Another process reads from the file where a namespace is. A namespace that is taken is not taken twice.
func TestRoutes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := NewRoutes(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Set("tenant 1", 0); err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]string{
		"default": "first", "tenant 1": "first", "tenant 3": "second", "x": "",
	} {
		if got := Route(dir, namespace); got != want {
			t.Errorf("%s is in %q, want %q", namespace, got, want)
		}
	}
	release, ok := r.Take("tenant 1")
	if _, twice := r.Take("tenant 1"); !ok || twice {
		t.Errorf("taken %t, and then %t", ok, twice)
	}
	release()
	if _, ok := r.Take("tenant 1"); !ok {
		t.Error("it is not given back")
	}
	if none := (*Routes)(nil); none.Of("default") != 0 {
		t.Error("without routes, the default namespace is not in the first database")
	}
}
