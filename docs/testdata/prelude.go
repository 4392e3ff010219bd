// The names that the Go blocks of the documentation use and do not declare.
package program

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/namespaces"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/value"
)

type (
	Order struct {
		ID, Address string
		Due         time.Time
	}
	Receipt  struct{ ID string }
	Payment  struct{ ID string }
	Booking  struct{ ID string }
	Decision struct{ By string }
	Quote    struct{ Cents int }
	Item     struct{ ID string }
	Basket   struct{ Customer string }
	Week     struct{}
	Parcel   struct{ Order string }
	Picture  struct{ Name string }
	Customer struct{ Name string }
	Email    struct{ ID, Subject string }
)

var (
	SignUp       = kagzi.Define[string, string]("sign-up")
	Greet        = kagzi.Define[string, string]("greet")
	Checkout     = kagzi.Define[Order, Receipt]("checkout")
	Charge       = kagzi.Define[Payment, Receipt]("charge")
	Ship         = kagzi.Define[Parcel, string]("ship")
	Mail         = kagzi.Define[string, struct{}]("mail")
	Report       = kagzi.Define[Week, struct{}]("report")
	Cart         = kagzi.Define[Basket, struct{}]("cart")
	Subscribe    = kagzi.Define[Customer, Receipt]("subscribe")
	CancelOrder  = kagzi.Define[string, struct{}]("cancel-order")
	CancelFlight = kagzi.Define[Booking, struct{}]("cancel-flight")
	Approved     = kagzi.DefineSignal[Decision]("approved")
	Paid         = topic.Define[Parcel]("order.paid")
	Received     = topic.Define[Email]("email.received")
	ToSheet      = topic.DefineConsumer("email-to-sheet", topic.ConsumerConfig{Topics: []topic.AnyTopic{Received}})
	AddItem      = kagzi.DefineSignal[Item]("add-item")
	Add          = request.Define[Item, int]("add")
	State        = value.Define[OrderState]("state")
)

type Cursor struct{ Rows int }

type OrderState struct{ Paid bool }

func toSheet(kagzi.Context, Cursor) (Cursor, error)              { panic(0) }
func writeRows(context.Context, int, []topic.Event[Email]) error { panic(0) }
func insertEmails(context.Context, []topic.Event[Email]) error   { panic(0) }
func load(context.Context, string) error                         { panic(0) }

const Declined kind.Kind = "card_declined"

type Decline struct{ Left int }

func payInParts(kagzi.Context, int) error { panic(0) }

var (
	pool                             *pgxpool.Pool
	tx                               pgx.Tx
	client                           *kagzi.Client
	worker                           *kagzi.Worker
	run                              kagzi.RunInfo
	mux                              *http.ServeMux
	working                          sync.WaitGroup
	from, until, yesterday, deployed time.Time
	order, a                         Order
	b, name, corrected               string
	directURL, poolerURL             string
	payment                          Payment
	parcel                           Parcel
	cart                             Basket
	item                             Item
	items                            []Item
	customer                         Customer
	email                            Email
	last                             int64
	pictures                         []Picture
	lines                            []string
	children                         []*kagzi.Child[Receipt]
	found                            int64
	err                              error
	env                              *kagzitest.Env
)

type (
	gatewayClient  struct{}
	ledgerTable    struct{}
	accountService struct{}
	mailService    struct{}
	application    struct{}
)

var (
	gateway  gatewayClient
	ledger   ledgerTable
	accounts accountService
	mail     mailService
	app      application
)

func (gatewayClient) Authorize(context.Context, Order, string) (Payment, error) { panic(0) }
func (ledgerTable) Insert(context.Context, pgx.Tx, Payment) (int64, error)      { panic(0) }
func (accountService) Create(context.Context, string, string) (string, error)   { panic(0) }
func (mailService) Welcome(context.Context, string) error                       { panic(0) }
func (application) checkout(kagzi.Context, Order) (Receipt, error)              { panic(0) }
func (application) checkoutV2(kagzi.Context, Order) (Receipt, error)            { panic(0) }

// What a payment provider sends to a webhook.
type paymentEvent struct {
	ID, Order string
	Payment   Payment
}

func verified(*http.Request) (paymentEvent, error)       { panic(0) }
func keepForPeople(context.Context, paymentEvent) error  { panic(0) }
func signUp(kagzi.Context, string) (string, error)       { panic(0) }
func greet(kagzi.Context, string) (string, error)        { panic(0) }
func subscribe(kagzi.Context, Customer) (Receipt, error) { panic(0) }
func askPrice(kagzi.Context, Order) (int, error)         { panic(0) }
func keep(kagzi.ID, Email) error                         { panic(0) }
func welcome(context.Context) error                      { panic(0) }
func askModel(context.Context) (string, error)           { panic(0) }

var promptTokens = 3000

func charge(context.Context) (Receipt, error)              { panic(0) }
func pay(ctx context.Context, key string, cents int) error { panic(0) }
func ship(kagzi.Context) error                             { panic(0) }
func bill(kagzi.Context) error                             { panic(0) }
func resize(kagzi.Context, Picture) (int, error)           { panic(0) }
func bookSeat(kagzi.Context, Order) error                  { panic(0) }
func importLine(context.Context, string) error             { panic(0) }
func askA(kagzi.Context) (Quote, error)                    { panic(0) }
func askB(kagzi.Context) (Quote, error)                    { panic(0) }
func notifyCustomer(kagzi.Context) error                   { panic(0) }
func remind(context.Context) error                         { panic(0) }

// What a program of many tenants has.
var (
	Invoice = kagzi.DefineDo[Order]("invoice")
	config  namespaces.Config
	pools   map[string]*pgxpool.Pool
)

func invoice(kagzi.Context, Order) error { panic(0) }
func databaseOf(tenant string) string    { panic(0) }

// A bankClient is what the bank offers.
type bankClient struct{}

func (bankClient) Refund(context.Context, Order) (Receipt, error)           { panic(0) }
func (bankClient) FindRefund(context.Context, Order) (Receipt, bool, error) { panic(0) }

var bank bankClient

// An airlineClient is what the airline offers.
type airlineClient struct{}

func (airlineClient) Book(context.Context, string, Order) error     { panic(0) }
func (airlineClient) Find(context.Context, string) (Booking, error) { panic(0) }
func (airlineClient) Cancel(context.Context, Booking) error         { panic(0) }

var (
	airline      airlineClient
	ErrNoBooking = errors.New("there is no such booking")
)

func bookFlight(context.Context) (Booking, error) { panic(0) }
func bookHotel(context.Context) error             { panic(0) }
func checkStock(context.Context) error            { panic(0) }
func countStock(context.Context) error            { panic(0) }
