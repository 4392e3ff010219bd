module example.com/sql

go 1.26
