%% SPDX-License-Identifier: Apache-2.0 OR MIT
%% A process of Erlang's for each connection: erl -noshell -pa DIRECTORY -s web main
-module(web).
-export([main/0, serve/1]).

main() ->
    {ok, Listener} = gen_tcp:listen(17501, [binary, {packet, http}, {active, false}, {reuseaddr, true}, {backlog, 512}, {nodelay, true}]),
    accept(Listener).

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    gen_tcp:controlling_process(Socket, spawn(?MODULE, serve, [Socket])),
    accept(Listener).

serve(Socket) ->
    case request(Socket) of
        ok ->
            Sum = integer_to_list(lists:foldl(fun(I, A) -> erlang:phash2({I, A}) end, 0, lists:seq(1, 4000))),
            Head = ["HTTP/1.1 200 OK\r\nContent-Length: ", integer_to_list(length(Sum)), "\r\n\r\n"],
            ok = gen_tcp:send(Socket, [Head, Sum]),
            serve(Socket);
        closed ->
            gen_tcp:close(Socket)
    end.

request(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, http_eoh} -> ok;
        {ok, _} -> request(Socket);
        {error, _} -> closed
    end.
