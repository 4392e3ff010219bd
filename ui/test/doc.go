// Package test tries the dashboard in a real browser: Debian's chromium, Chrome, or the program that KAGZI_BROWSER
// names. It is a module of its own, so that programs with a dashboard do not need what drives a browser.
//
// A test fails if the browser reports an error in its console, a violation of the Content-Security-Policy, or a request
// to another host.
//
//	go test -run Screenshots -screenshots DIR .
//
// writes a picture of each page; those of the dashboard's README are cut off with -tallest 880.
package test
