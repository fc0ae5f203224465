package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// connector makes MySQL connections whose transactions cost no round trip to begin: the isolation is the session's, and
// a session without autocommit is always in a transaction, which its first statement begins. A transaction of the
// engines has five to nine statements, so that the two that begin it would be a good part of it.
type connector struct {
	driver.Connector
	// implicit: the session has no autocommit. Every statement on such a connection must be inside a transaction.
	implicit bool
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := made.(mysqlConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("database: the driver's connection is a %T", made), made.Close())
	}
	setup := []string{"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"}
	if c.implicit {
		setup = append(setup, "SET autocommit = 0")
	}
	for _, statement := range setup {
		if _, err := conn.ExecContext(ctx, statement, nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	if c.implicit {
		return implicitConn{conn}, nil
	}
	return conn, nil
}

// mysqlConn is what database/sql uses of the driver's connection.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// implicitConn is in a transaction whenever a statement has run.
type implicitConn struct{ mysqlConn }

// BeginTx sends nothing: the next statement begins the transaction.
func (c implicitConn) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o.ReadOnly || o.Isolation != 0 {
		return nil, errors.New("database: an implicit transaction has its session's options")
	}
	return implicitTx(c), nil
}

type implicitTx struct{ mysqlConn }

func (t implicitTx) Commit() error   { return t.end("COMMIT") }
func (t implicitTx) Rollback() error { return t.end("ROLLBACK") }

func (t implicitTx) end(statement string) error {
	// The driver's own timeouts bound it, as they bound a transaction's end of its own.
	_, err := t.ExecContext(context.Background(), statement, nil)
	return err
}
