// Package schedules has black-box tests of schedules: when they fire, what they start, and how they overlap.
package schedules
