package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A shared is something that several tests use. The first starts it, and the last ends it.
type shared[S any] struct {
	start func() (S, func() error, error)

	mu    sync.Mutex
	users int
	begun bool
	value S
	stop  func() error
	err   error
}

// reserve keeps it from being ended until the test is over. A parallel test calls it before it calls Parallel: such
// tests go on only when all of them have got that far, so that it is ended once, after the last of them.
func (s *shared[S]) reserve(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users > 0 || !s.begun {
			return
		}
		if s.begun = false; s.err == nil {
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// get returns it. A test that calls it has reserved it.
func (s *shared[S]) get(t *testing.T) S {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.value, s.stop, s.err = s.start()
		s.begun = true
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.value
}

// browser is the browser of all tests. Each tab has its own cookies and its own storage.
var browser = shared[context.Context]{start: startBrowser}

// programs are the names of browsers, the best first.
var programs = []string{
	"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome",
	"/Applications/Chromium.app/Contents/MacOS/Chromium",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
}

func findBrowser() (string, error) {
	if path := os.Getenv("KAGZI_BROWSER"); path != "" {
		return path, nil
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the tests of the dashboard need chromium: run .ci/setup, or say with KAGZI_BROWSER where " +
		"a browser is")
}

// startBrowser starts it with a profile of its own.
func startBrowser() (_ context.Context, stop func() error, err error) {
	path, err := findBrowser()
	if err != nil {
		return nil, nil, err
	}
	profile, err := os.MkdirTemp("", "kagzi-browser-")
	if err != nil {
		return nil, nil, err
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.WSURLReadTimeout(await.Patience),
		chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-pings", true),
		chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("lang", "en-GB"))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	allocator, free := chromedp.NewExecAllocator(context.Background(), opts...)
	// a tab that closes while events arrive
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	stop = func() error {
		ctx, end := context.WithTimeout(ctx, 10*time.Second)
		defer end()
		err := chromedp.Cancel(ctx)
		cancel()
		free()
		return errors.Join(err, os.RemoveAll(profile))
	}
	if err := chromedp.Do(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start %s: %w", path, err), stop())
	}
	return ctx, stop, nil
}
