// Package scrape has the test that Prometheus gets the names that the board and the rules use. It is a module of its
// own, so that the module otel does not depend on Prometheus.
package scrape
