// Package notify sends hints between processes by Postgres' LISTEN and NOTIFY: read this queue now, read these runs
// now. Every hint may be lost, so a process that waits for one also polls.
package notify
