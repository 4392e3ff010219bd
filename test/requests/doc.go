// Package requests has black-box tests of requests: asked once, answered once.
package requests
