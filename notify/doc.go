// Package notify carries hints between processes with Postgres' LISTEN and NOTIFY: look at this queue, look at
// these runs. Every hint may be lost; whoever waits for one also polls.
package notify
