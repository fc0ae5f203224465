// Package arch holds no code: its test is the project's import table.
package arch
