module github.com/kagzi/kagzi/chaos

go 1.26.0

replace github.com/kagzi/kagzi => ../

require (
	github.com/google/uuid v1.6.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/kagzi/kagzi v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.38.0
)
