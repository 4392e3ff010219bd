package failure

import "testing"

func TestWithoutArguments(t *testing.T) {
	t.Parallel()
	for stack, want := range map[string]string{
		"goroutine 7 [running]:\n":                             "goroutine 7 [running]:\n",
		"main.f(0x1b6a43730, {0x10, 0x2f})\n\t/a(b).go:1 +0x1": "main.f(...)\n\t/a(b).go:1 +0x1",
		"main.(*T).Method(0x1)":                                "main.(*T).Method(...)",
		"main.T.Method({{0x1?, 0x2?}, 0x3})\n":                 "main.T.Method(...)\n",
		"main.f[...](0x1)\nmain.g()\nmain.h(...)\n":            "main.f[...](...)\nmain.g()\nmain.h(...)\n",
		"main.f.func1.1(0x1)\ncreated by main.f in goroutine 1\n\t/a.go:1 +0x1\n": "main.f.func1.1(...)\ncreated by " +
			"main.f in goroutine 1\n\t/a.go:1 +0x1\n",
		"": "",
	} {
		if got := string(WithoutArguments([]byte(stack))); got != want {
			t.Errorf("%q becomes %q, want %q", stack, got, want)
		}
	}
}
