-- What dashboards send: the published `orders` of a shop with the public tables countries, products,
-- complaints and targets.  Sensitive: age, gender, payment, income, returned, complaint, rating.

-- ---- time series ----

-- name: orders by month
SELECT date_trunc('month', ordered) AS month, COUNT(*) AS orders FROM orders GROUP BY 1 ORDER BY 1;

-- name: returns by month
SELECT date_trunc('month', ordered) AS month, COUNT(*) AS returns FROM orders WHERE returned GROUP BY 1 ORDER BY 1;

-- name: returns by quarter and category
SELECT date_trunc('quarter', ordered) AS quarter, category, SUM(returned::INT) AS returns
FROM orders GROUP BY quarter, category ORDER BY quarter, category;

-- name: share of returns by week of 2023
SELECT date_trunc('week', ordered) AS week, AVG(CASE WHEN returned THEN 1.0 ELSE 0.0 END) AS rate
FROM orders WHERE year(ordered) = 2023 GROUP BY week ORDER BY week;

-- name: card sales by year
SELECT extract(year FROM ordered) AS year, SUM(sales) AS sales FROM orders WHERE payment = 'card' GROUP BY year ORDER BY year;

-- name: buyers by month and payment
SELECT date_trunc('month', ordered) AS month, payment, COUNT(DISTINCT customer_id) AS buyers
FROM orders WHERE ordered >= DATE '2024-01-01' GROUP BY month, payment ORDER BY month, payment;

-- name: buyers who paid by card, by month
SELECT strftime(ordered, '%Y-%m') AS month, COUNT(DISTINCT customer_id) AS buyers
FROM orders WHERE payment = 'card' GROUP BY month ORDER BY month;

-- name: running total of returns
SELECT month, returns, SUM(returns) OVER (ORDER BY month) AS so_far
FROM (SELECT date_trunc('month', ordered) AS month, COUNT(*) FILTER (WHERE returned) AS returns FROM orders GROUP BY 1) AS m
ORDER BY month;

-- name: moving average over three months
SELECT month, AVG(returns) OVER (ORDER BY month ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS smooth
FROM (SELECT date_trunc('month', ordered) AS month, COUNT(*) AS returns FROM orders WHERE returned GROUP BY 1) AS m
ORDER BY month;

-- name: change against the month before
SELECT month, returns - LAG(returns) OVER (ORDER BY month) AS change
FROM (SELECT date_trunc('month', ordered) AS month, COUNT(*) AS returns FROM orders WHERE returned GROUP BY 1) AS m
ORDER BY month;

-- name: orders by weekday
SELECT dayname(ordered) AS weekday, COUNT(*) AS orders, AVG(rating) AS rating FROM orders GROUP BY weekday ORDER BY weekday;

-- name: days to ship by year for returned goods
SELECT year(ordered) AS year, AVG(date_diff('day', ordered, shipped)) AS days FROM orders WHERE returned GROUP BY year ORDER BY year;

-- name: mean age by half year
SELECT year(ordered) AS year, CASE WHEN month(ordered) <= 6 THEN 'H1' ELSE 'H2' END AS half, AVG(age) AS age
FROM orders GROUP BY year, half ORDER BY year, half;

-- name: open orders, latest day
SELECT COUNT(*) AS open_orders, MAX(ordered) AS latest FROM orders WHERE shipped IS NULL;

-- name: the latest day only
SELECT payment, COUNT(*) AS orders FROM orders WHERE ordered > (SELECT MAX(ordered) FROM orders) - INTERVAL 90 DAY
GROUP BY payment ORDER BY payment;

-- name: orders until today
SELECT category, COUNT(*) FILTER (WHERE returned) AS returns FROM orders WHERE ordered <= current_date GROUP BY category ORDER BY category;

-- name: orders of the last decades
SELECT channel, AVG(income) AS income FROM orders WHERE ordered >= now() - INTERVAL 40 YEAR GROUP BY channel ORDER BY channel;

-- name: age of orders at the end
SELECT date_diff('year', ordered, DATE '2025-01-01') AS years_ago, SUM(returned::INT) AS returns FROM orders GROUP BY years_ago ORDER BY years_ago;

-- name: months from a list
SELECT m.month, COALESCE(o.returns, 0) AS returns
FROM (VALUES (DATE '2024-01-01'), (DATE '2024-02-01'), (DATE '2024-03-01')) AS m(month)
LEFT JOIN (SELECT date_trunc('month', ordered) AS month, COUNT(*) AS returns FROM orders WHERE returned GROUP BY 1) AS o
  ON m.month = o.month
ORDER BY m.month;

-- name: first half against second half
SELECT COUNT(*) FILTER (WHERE returned AND ordered < DATE '2023-07-01') AS before,
       COUNT(*) FILTER (WHERE returned AND ordered >= DATE '2023-07-01') AS after
FROM orders;

-- ---- buckets ----

-- name: ages in decades
SELECT age // 10 * 10 AS decade, COUNT(*) AS orders FROM orders GROUP BY decade ORDER BY decade;

-- name: ages in named bands
SELECT CASE WHEN age < 30 THEN 'under 30' WHEN age < 50 THEN '30 to 49' WHEN age < 65 THEN '50 to 64' ELSE '65 and over' END AS band,
       COUNT(*) AS orders, SUM(sales) AS sales
FROM orders GROUP BY band ORDER BY band;

-- name: age bands by channel
SELECT channel, CASE WHEN age < 40 THEN 'young' ELSE 'old' END AS band, AVG(sales) AS mean
FROM orders GROUP BY channel, band ORDER BY channel, band;

-- name: buyers by age band
SELECT CASE WHEN age < 30 THEN 1 WHEN age < 50 THEN 2 ELSE 3 END AS band, COUNT(DISTINCT customer_id) AS buyers
FROM orders GROUP BY band ORDER BY band;

-- name: order values in hundreds
SELECT floor(sales / 100) * 100 AS bucket, COUNT(*) AS orders, COUNT(*) FILTER (WHERE payment = 'invoice') AS invoices
FROM orders GROUP BY bucket ORDER BY bucket;

-- name: histogram of income
SELECT income, COUNT(*) AS orders FROM orders GROUP BY income ORDER BY income;

-- name: income in wide buckets
SELECT CASE WHEN income <= 40 THEN 'low' WHEN income <= 80 THEN 'middle' ELSE 'high' END AS bucket, COUNT(*) AS orders
FROM orders WHERE returned GROUP BY bucket ORDER BY bucket;

-- name: ratings in words
SELECT CASE rating WHEN 5 THEN 'excellent' WHEN 4 THEN 'good' WHEN 3 THEN 'fair' ELSE 'poor' END AS word, COUNT(*) AS orders
FROM orders WHERE rating IS NOT NULL GROUP BY word ORDER BY word;

-- name: known and unknown ratings
SELECT rating IS NULL AS unknown, COUNT(*) AS orders FROM orders GROUP BY unknown ORDER BY unknown;

-- name: baskets by size and gender
SELECT least(items, 5) AS items, gender, COUNT(*) AS orders FROM orders GROUP BY 1, 2 ORDER BY 1, 2;

-- name: orders by profit
SELECT CASE WHEN profit < 0 THEN 'loss' WHEN profit < 50 THEN 'some' ELSE 'much' END AS result, AVG(rating) AS rating, COUNT(*) AS orders
FROM orders GROUP BY result ORDER BY result;

-- name: median and quartiles of age
SELECT QUANTILE_CONT(age, 0.25) AS lower, MEDIAN(age) AS middle, QUANTILE_CONT(age, 0.75) AS upper FROM orders;

-- name: quartiles in one call
SELECT QUANTILE_CONT(age, [0.25, 0.5, 0.75]) AS quartiles FROM orders;

-- name: median order value of returns
SELECT category, MEDIAN(sales) AS middle FROM orders WHERE returned GROUP BY category ORDER BY category;

-- name: ninth decile of income by channel
SELECT channel, QUANTILE_DISC(income, 0.9) AS high FROM orders GROUP BY channel ORDER BY channel;

-- name: median income by region
SELECT region, MEDIAN(income) AS income FROM orders GROUP BY region ORDER BY region;

-- ---- top-N, and the rest ----

-- name: products with most returns
SELECT product, COUNT(*) AS returns FROM orders WHERE returned GROUP BY product ORDER BY returns DESC, product LIMIT 5;

-- name: complaints by frequency
SELECT complaint, COUNT(*) AS orders FROM orders WHERE complaint <> 'none' GROUP BY complaint ORDER BY orders DESC LIMIT 3;

-- name: top countries by sales with returns
SELECT country, SUM(sales) AS sales, SUM(CASE WHEN returned THEN sales ELSE 0 END) AS returned FROM orders
GROUP BY country ORDER BY sales DESC LIMIT 3;

-- name: three products and the rest as other
SELECT CASE WHEN product IN ('desk', 'chair', 'phone') THEN product ELSE 'other' END AS product, COUNT(*) AS returns
FROM orders WHERE returned GROUP BY 1 ORDER BY 1;

-- name: top products by sales and the rest
SELECT CASE WHEN product IN (SELECT product FROM orders GROUP BY product ORDER BY SUM(sales) DESC LIMIT 3) THEN product ELSE 'other' END AS item,
       COUNT(*) FILTER (WHERE returned) AS returns
FROM orders GROUP BY item ORDER BY item;

-- name: top countries and the rest, from a ranked CTE
WITH ranked AS (SELECT country, row_number() OVER (ORDER BY SUM(sales) DESC) AS place FROM orders GROUP BY country)
SELECT CASE WHEN r.place <= 2 THEN o.country ELSE 'other' END AS country, AVG(o.age) AS age
FROM orders o JOIN ranked r ON o.country = r.country GROUP BY 1 ORDER BY 1;

-- name: series limit of two categories
SELECT date_trunc('year', ordered) AS __timestamp, category AS category, COUNT(*) AS count
FROM orders
JOIN (SELECT category AS category__, SUM(sales) AS mme_inner__ FROM orders GROUP BY category ORDER BY mme_inner__ DESC LIMIT 2) AS series_limit
  ON category = category__
WHERE payment = 'card'
GROUP BY category, date_trunc('year', ordered) ORDER BY count DESC, 1, 2 LIMIT 1000;

-- name: series limit by an estimate
SELECT date_trunc('year', ordered) AS __timestamp, product AS product, COUNT(*) AS count
FROM orders
JOIN (SELECT product AS product__, COUNT(*) AS mme_inner__ FROM orders WHERE returned GROUP BY product ORDER BY mme_inner__ DESC LIMIT 2) AS series_limit
  ON product = product__
WHERE returned
GROUP BY product, date_trunc('year', ordered) ORDER BY count DESC, 1, 2 LIMIT 1000;

-- name: best product of each category
SELECT category, product, COUNT(*) AS returns FROM orders WHERE returned GROUP BY category, product
QUALIFY row_number() OVER (PARTITION BY category ORDER BY COUNT(*) DESC) = 1 ORDER BY category;

-- name: bottom channels by rating
SELECT channel, AVG(rating) AS rating FROM orders GROUP BY channel ORDER BY rating ASC LIMIT 2;

-- name: categories with many returns
SELECT category, COUNT(*) AS returns FROM orders WHERE returned GROUP BY category HAVING COUNT(*) >= 300 ORDER BY returns DESC;

-- name: buyers of the largest products
SELECT product, COUNT(DISTINCT customer_id) AS buyers FROM orders WHERE gender = 'f' GROUP BY product ORDER BY buyers DESC, product LIMIT 5;

-- name: rank of payments
SELECT payment, COUNT(*) AS orders, rank() OVER (ORDER BY COUNT(*) DESC) AS place FROM orders GROUP BY payment ORDER BY place;

-- name: best customers by spending
SELECT customer_id, SUM(sales) AS spent FROM orders GROUP BY customer_id ORDER BY spent DESC, customer_id LIMIT 10;

-- name: complaints about two products
SELECT complaint, COUNT(*) AS orders FROM orders WHERE product IN ('desk', 'laptop') GROUP BY complaint ORDER BY complaint;

-- ---- shares ----

-- name: share of each payment
SELECT payment, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS percent FROM orders GROUP BY payment ORDER BY payment;

-- name: share of returns that each category has
SELECT category, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM orders WHERE returned GROUP BY category ORDER BY category;

-- name: share of payments within a region
SELECT region, payment, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY region) AS share
FROM orders GROUP BY region, payment ORDER BY region, payment;

-- name: rate of returns by product
SELECT product, SUM(CASE WHEN returned THEN 1 ELSE 0 END) * 1.0 / COUNT(*) AS rate FROM orders GROUP BY product ORDER BY product;

-- name: part of all orders
SELECT COUNT(*) * 1.0 / (SELECT COUNT(*) FROM orders) AS part FROM orders WHERE complaint = 'late';

-- name: share of sales paid on invoice
SELECT SUM(sales) FILTER (WHERE payment = 'invoice') / SUM(sales) AS share FROM orders;

-- name: buyers with a complaint as a share of all
SELECT region, COUNT(DISTINCT CASE WHEN complaint <> 'none' THEN customer_id END) * 1.0 / COUNT(DISTINCT customer_id) AS share
FROM orders GROUP BY region ORDER BY region;

-- name: conversion of channels
SELECT channel, COUNT(*) AS orders, COUNT(*) FILTER (WHERE rating >= 4) AS happy,
       COUNT(*) FILTER (WHERE rating >= 4) * 1.0 / COUNT(*) AS rate
FROM orders GROUP BY channel ORDER BY channel;

-- name: index against the mean
SELECT region, AVG(income) / (SELECT AVG(sales) FROM orders) AS index FROM orders GROUP BY region ORDER BY region;

-- name: net promoter score
SELECT category, (COUNT(*) FILTER (WHERE rating = 5) - COUNT(*) FILTER (WHERE rating <= 3)) * 100.0 / COUNT(*) AS score
FROM orders GROUP BY category ORDER BY category;

-- name: shares of two sub-selects
SELECT a.category, a.returns * 1.0 / b.orders AS rate
FROM (SELECT category, COUNT(*) AS returns FROM orders WHERE returned GROUP BY category) AS a
JOIN (SELECT category, COUNT(*) AS orders FROM orders GROUP BY category) AS b ON a.category = b.category
ORDER BY a.category;

-- name: cumulative share of sales
SELECT product, SUM(SUM(sales)) OVER (ORDER BY SUM(sales) DESC) / SUM(SUM(sales)) OVER () AS share FROM orders GROUP BY product ORDER BY share;

-- name: share of each rating with its rounding
SELECT rating, ROUND(COUNT(*) * 100.0 / SUM(COUNT(*)) OVER (), 1) AS percent FROM orders WHERE rating IS NOT NULL GROUP BY rating ORDER BY rating;

-- ---- cohorts ----

-- name: returns by year of the first order
SELECT year(f.first) AS cohort, COUNT(*) AS returns
FROM orders o JOIN (SELECT customer_id, MIN(ordered) AS first FROM orders GROUP BY customer_id) AS f ON o.customer_id = f.customer_id
WHERE o.returned GROUP BY cohort ORDER BY cohort;

-- name: shipped in the same month or later
SELECT CASE WHEN month(shipped) <> month(ordered) THEN 'later' ELSE 'same' END AS kind, AVG(rating) AS rating
FROM orders WHERE shipped IS NOT NULL GROUP BY kind ORDER BY kind;

-- name: those who came back
SELECT payment, COUNT(*) AS orders FROM orders
WHERE customer_id IN (SELECT customer_id FROM orders GROUP BY customer_id HAVING COUNT(*) > 1)
GROUP BY payment ORDER BY payment;

-- name: cohort sizes
SELECT date_trunc('year', first) AS cohort, COUNT(*) AS customers
FROM (SELECT customer_id, MIN(ordered) AS first FROM orders GROUP BY customer_id) AS f GROUP BY cohort ORDER BY cohort;

-- name: customers by number of orders
SELECT orders_made, COUNT(*) AS customers FROM (SELECT customer_id, COUNT(*) AS orders_made FROM orders GROUP BY customer_id) AS c
GROUP BY orders_made ORDER BY orders_made;

-- name: customers who returned something
SELECT COUNT(DISTINCT customer_id) AS customers, COUNT(*) AS orders FROM orders WHERE returned;

-- name: returns of two years
SELECT COUNT(*) AS returns, SUM(sales) AS sales FROM orders WHERE returned AND year(ordered) IN (2022, 2024);

-- ---- pivots ----

-- name: payments as columns
SELECT category, SUM(CASE WHEN payment = 'card' THEN 1 ELSE 0 END) AS card, SUM(CASE WHEN payment = 'cash' THEN 1 ELSE 0 END) AS cash,
       SUM(CASE WHEN payment = 'invoice' THEN 1 ELSE 0 END) AS invoice, SUM(CASE WHEN payment = 'voucher' THEN 1 ELSE 0 END) AS voucher
FROM orders GROUP BY category ORDER BY category;

-- name: years as columns
SELECT payment, COUNT(*) FILTER (WHERE year(ordered) = 2022) AS y2022, COUNT(*) FILTER (WHERE year(ordered) = 2023) AS y2023,
       COUNT(*) FILTER (WHERE year(ordered) = 2024) AS y2024
FROM orders GROUP BY payment ORDER BY payment;

-- name: pivot with listed values
SELECT * FROM (SELECT category, payment, sales FROM orders) PIVOT (SUM(sales) FOR payment IN ('card', 'cash', 'invoice') GROUP BY category) ORDER BY category;

-- name: genders as columns
SELECT region, COUNT(*) FILTER (WHERE gender = 'f') AS f, COUNT(*) FILTER (WHERE gender = 'm') AS m, COUNT(*) FILTER (WHERE gender = 'x') AS x
FROM orders GROUP BY region ORDER BY region;

-- name: sales by gender as columns
SELECT channel, SUM(sales) FILTER (WHERE gender = 'f') AS f, SUM(sales) FILTER (WHERE gender = 'm') AS m, AVG(sales) AS mean
FROM orders GROUP BY channel ORDER BY channel;

-- name: buyers by gender as columns
SELECT region, COUNT(DISTINCT customer_id) FILTER (WHERE gender = 'f') AS f, COUNT(DISTINCT customer_id) FILTER (WHERE gender = 'm') AS m
FROM orders GROUP BY region ORDER BY region;

-- name: heat map of age and income
SELECT age // 20 AS age, income // 40 AS income, COUNT(*) AS orders FROM orders GROUP BY 1, 2 ORDER BY 1, 2;

-- name: heat map of weekday and channel
SELECT isodow(ordered) AS weekday, channel, COUNT(*) FILTER (WHERE returned) AS returns FROM orders GROUP BY ALL ORDER BY ALL;

-- name: cross table of complaint and payment
SELECT complaint, payment, COUNT(*) AS orders FROM orders GROUP BY complaint, payment ORDER BY complaint, payment;

-- ---- year over year ----

-- name: change of returns against the year before
SELECT year, returns, returns / LAG(returns) OVER (ORDER BY year) - 1 AS change
FROM (SELECT year(ordered) AS year, COUNT(*) AS returns FROM orders WHERE returned GROUP BY 1) AS y ORDER BY year;

-- name: two years side by side by month
SELECT month(ordered) AS month, COUNT(*) FILTER (WHERE year(ordered) = 2024) AS now_, COUNT(*) FILTER (WHERE year(ordered) = 2023) AS before
FROM orders WHERE payment = 'card' GROUP BY month ORDER BY month;

-- name: growth of a category
SELECT category, SUM(CASE WHEN year(ordered) = 2024 AND returned THEN sales END) / SUM(CASE WHEN year(ordered) = 2023 AND returned THEN sales END) - 1 AS growth
FROM orders GROUP BY category ORDER BY category;

-- name: buyers this year and the year before
SELECT COUNT(DISTINCT CASE WHEN year(ordered) = 2024 THEN customer_id END) AS now_, COUNT(DISTINCT CASE WHEN year(ordered) = 2023 THEN customer_id END) AS before
FROM orders WHERE age >= 50;

-- name: latest year against the mean of all
SELECT payment, COUNT(*) FILTER (WHERE ordered >= DATE '2024-01-01') - COUNT(*) / 3.0 AS above FROM orders GROUP BY payment ORDER BY payment;

-- name: year to date of each year
SELECT year(ordered) AS year, SUM(sales) FILTER (WHERE gender = 'f') AS sales FROM orders WHERE dayofyear(ordered) <= 200 GROUP BY year ORDER BY year;

-- name: same quarter of two years
SELECT quarter(ordered) AS quarter,
       COUNT(*) FILTER (WHERE returned AND year(ordered) = 2024) - COUNT(*) FILTER (WHERE returned AND year(ordered) = 2023) AS change
FROM orders GROUP BY quarter ORDER BY quarter;

-- ---- totals ----

-- name: categories with a total row
SELECT COALESCE(category, 'total') AS category, COUNT(*) FILTER (WHERE returned) AS returns FROM orders GROUP BY ROLLUP (category) ORDER BY 1;

-- name: regions and countries with subtotals
SELECT region, country, SUM(sales) AS sales, AVG(age) AS age FROM orders GROUP BY ROLLUP (region, country) ORDER BY region, country;

-- name: cube of channel and payment
SELECT channel, payment, COUNT(*) AS orders FROM orders GROUP BY CUBE (channel, payment) ORDER BY channel, payment;

-- name: grouping sets with their level
SELECT GROUPING(category) AS level, category, gender, COUNT(*) AS orders FROM orders GROUP BY GROUPING SETS ((category, gender), (gender)) ORDER BY 1, 2, 3;

-- name: total by union
SELECT category, COUNT(*) AS returns FROM orders WHERE returned GROUP BY category
UNION ALL SELECT 'total', COUNT(*) FROM orders WHERE returned ORDER BY 1;

-- name: total of a report
SELECT COUNT(*) AS orders, SUM(sales) AS sales, AVG(sales) AS mean, SUM(returned::INT) AS returns, AVG(rating) AS rating FROM orders;

-- name: buyers with a total row
SELECT payment, COUNT(DISTINCT customer_id) AS buyers FROM orders GROUP BY ROLLUP (payment) ORDER BY payment;

-- ---- filters and menus, as tools write them ----

-- name: filter menu of a public column
SELECT "orders"."category" AS "category" FROM "orders" "orders" GROUP BY 1 ORDER BY 1 ASC;

-- name: filter menu of a sensitive column
SELECT "orders"."payment" AS "payment" FROM "orders" "orders" GROUP BY 1 ORDER BY 1 ASC;

-- name: menu of countries under another filter
SELECT "orders"."country" AS "country" FROM "orders" "orders" WHERE ("orders"."payment" = 'card') GROUP BY 1 ORDER BY 1 ASC;

-- name: menu of products under two filters
SELECT DISTINCT "product" FROM "orders" WHERE "returned" = TRUE AND "category" = 'devices' ORDER BY "product" LIMIT 1000;

-- name: menu of two columns
SELECT region, country FROM orders WHERE gender IN ('f', 'x') GROUP BY region, country ORDER BY region, country;

-- name: menu of years
SELECT DISTINCT year(ordered) AS year FROM orders WHERE complaint = 'broken' ORDER BY year;

-- name: menu of complaints with their payments
SELECT complaint, payment FROM orders GROUP BY 1, 2;

-- name: distinct values of a sensitive column
SELECT DISTINCT complaint FROM orders ORDER BY complaint;

-- name: number of distinct complaints
SELECT COUNT(DISTINCT complaint) AS complaints FROM orders;

-- name: range of dates
SELECT MIN("orders"."ordered") AS "min", MAX("orders"."ordered") AS "max" FROM "orders" "orders" HAVING (COUNT(1) > 0);

-- name: range of ages
SELECT MIN(age) AS low, MAX(age) AS high FROM orders;

-- name: range of dates under a filter
SELECT MIN("orders"."ordered") AS "min", MAX("orders"."ordered") AS "max" FROM "orders" "orders" WHERE ("orders"."payment" = 'card') HAVING (COUNT(1) > 0);

-- name: largest order by gender
SELECT gender, MAX(sales) AS largest FROM orders GROUP BY gender ORDER BY gender;

-- name: latest date beside returns
SELECT category, MAX(ordered) AS latest, COUNT(*) FILTER (WHERE returned) AS returns FROM orders GROUP BY category ORDER BY category;

-- name: sum with a quoted filter
SELECT "orders"."region" AS "region", SUM(CAST("orders"."sales" AS DOUBLE)) AS "sum:sales:ok" FROM "orders" "orders"
WHERE (("orders"."payment" IN ('card', 'cash')) AND (NOT ("orders"."region" IS NULL))) GROUP BY 1 ORDER BY 1;

-- name: condition with lower
SELECT COUNT(1) AS "cnt:orders:ok" FROM "orders" "orders" WHERE (LOWER("orders"."complaint") LIKE LOWER('%L%te%'));

-- name: date filter with casts
SELECT CAST(TRUNC(EXTRACT(YEAR FROM "orders"."ordered")) AS INTEGER) AS "yr:ordered:ok", COUNT(DISTINCT "orders"."customer_id") AS "ctd:customer:ok"
FROM "orders" "orders" WHERE "orders"."rating" >= 4 GROUP BY 1 ORDER BY 1;

-- name: condition that is always true
SELECT payment, COUNT(*) AS count_1 FROM orders WHERE 1 = 1 AND (ordered >= TIMESTAMP '2023-01-01 00:00:00') GROUP BY payment ORDER BY count_1 DESC;

-- name: range of ages in a filter
SELECT AVG(CAST("age" AS DOUBLE)) AS "avg", COUNT(*) AS "count" FROM "orders" WHERE "age" BETWEEN 25 AND 54 AND "category" <> 'supplies';

-- name: not in a list, with nulls
SELECT channel, COUNT(*) AS orders FROM orders WHERE complaint NOT IN ('late', 'broken') OR complaint IS NULL GROUP BY channel ORDER BY channel;

-- ---- wrappers and probes ----

-- name: a constant
SELECT 1;

-- name: probe of a table
SELECT 1 AS one FROM orders LIMIT 0;

-- name: probe of columns
SELECT * FROM orders LIMIT 0;

-- name: probe of a query
SELECT * FROM (SELECT payment, COUNT(*) AS orders FROM orders GROUP BY payment) AS q LIMIT 0;

-- name: preview of rows
SELECT * FROM orders ORDER BY order_id LIMIT 5;

-- name: columns of a table
DESCRIBE orders;

-- name: columns by the catalog
SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'main' AND table_name = 'orders' ORDER BY ordinal_position;

-- name: tables
SHOW TABLES;

-- name: size of a dimension
SELECT COUNT(*) AS countries, SUM(people) AS people FROM countries;

-- name: columns by their summary
SELECT column_name, column_type FROM (SUMMARIZE orders) ORDER BY column_name;

-- name: a wrapped virtual table
SELECT category AS category, SUM(returned_) AS returns FROM (SELECT category, CASE WHEN returned THEN 1 ELSE 0 END AS returned_ FROM orders) AS virtual_table
GROUP BY category ORDER BY returns DESC LIMIT 10000;

-- name: a wrapped report
SELECT q.payment, q.orders FROM (SELECT payment, COUNT(*) AS orders FROM orders GROUP BY payment) AS q WHERE q.orders > 100 ORDER BY q.payment;

-- name: count of a report's rows
SELECT COUNT(*) AS rowcount FROM (SELECT category, channel, COUNT(*) AS orders FROM orders GROUP BY category, channel) AS rowcount_qry;

-- name: mean over a report
SELECT AVG(returns) AS mean FROM (SELECT product, COUNT(*) AS returns FROM orders WHERE returned GROUP BY product) AS q;

-- name: worst month
SELECT date_trunc('month', ordered) AS month, COUNT(*) AS returns FROM orders WHERE returned GROUP BY 1 ORDER BY returns DESC, month LIMIT 1;

-- name: chain of common table expressions
WITH base AS (SELECT * FROM orders WHERE ordered >= DATE '2023-01-01'), slim AS (SELECT category, payment, sales FROM base WHERE payment <> 'voucher')
SELECT category, SUM(sales) AS sales, COUNT(*) AS orders FROM slim GROUP BY category ORDER BY category;

-- ---- joins and levels of detail ----

-- name: continents
SELECT c.continent, COUNT(*) AS returns FROM orders o JOIN countries c ON o.country = c.country WHERE o.returned GROUP BY c.continent ORDER BY c.continent;

-- name: makers by comma join
SELECT p.maker, AVG(o.rating) AS rating FROM orders o, products p WHERE o.product = p.product GROUP BY p.maker ORDER BY p.maker;

-- name: severity of complaints
SELECT c.team, COUNT(*) AS orders, SUM(o.sales) AS sales FROM orders o JOIN complaints c ON o.complaint = c.complaint
WHERE c.severity > 0 GROUP BY c.team ORDER BY c.team;

-- name: sales against target
SELECT o.category, SUM(o.sales) FILTER (WHERE NOT o.returned) / t.target AS reached
FROM orders o JOIN targets t USING (category) GROUP BY o.category, t.target ORDER BY o.category;

-- name: join with a condition on the dimension
SELECT o.channel, COUNT(*) AS orders FROM orders o INNER JOIN countries c ON (o.country = c.country AND c.continent = 'Europe')
WHERE o.payment = 'card' GROUP BY o.channel ORDER BY o.channel;

-- name: left join with names
SELECT COALESCE(c.country_name, 'unknown') AS country, AVG(o.income) AS income FROM orders o LEFT JOIN countries c ON o.country = c.country GROUP BY 1 ORDER BY 1;

-- name: groups given as values
SELECT v.label, COUNT(*) FILTER (WHERE o.returned) AS returns
FROM orders o JOIN (VALUES ('web', 'online'), ('shop', 'offline'), ('phone', 'offline')) AS v(channel, label) ON o.channel = v.channel
GROUP BY v.label ORDER BY v.label;

-- name: a filter from a public table
SELECT payment, SUM(sales) AS sales FROM orders
WHERE product IN (SELECT product FROM products WHERE list_price > 100) GROUP BY payment ORDER BY payment;

-- name: only products that are listed
SELECT gender, COUNT(*) AS orders FROM orders o WHERE EXISTS (SELECT 1 FROM products p WHERE p.product = o.product AND p.launched >= DATE '2018-01-01')
GROUP BY gender ORDER BY gender;

-- name: orders above the mean value
SELECT payment, COUNT(*) AS orders FROM orders WHERE sales > (SELECT AVG(sales) FROM orders) GROUP BY payment ORDER BY payment;

-- name: customers older than the mean
SELECT category, COUNT(*) AS orders FROM orders WHERE age > (SELECT AVG(age) FROM orders) GROUP BY category ORDER BY category;

-- name: fixed level of detail
SELECT "t0"."region" AS "region", AVG("t1"."spent") AS "avg:spent", COUNT(*) FILTER (WHERE "t0"."returned") AS "returns"
FROM "orders" "t0" INNER JOIN (SELECT "orders"."customer_id" AS "customer_id", SUM("orders"."sales") AS "spent" FROM "orders" "orders" GROUP BY 1) "t1"
  ON ("t0"."customer_id" IS NOT DISTINCT FROM "t1"."customer_id")
GROUP BY 1 ORDER BY 1;

-- name: part of each category that came back
SELECT category, SUM(CASE WHEN returned THEN sales ELSE 0 END) / SUM(sales) AS share FROM orders GROUP BY category ORDER BY category;

-- ---- statistics ----

-- name: spread of age and income
SELECT channel, STDDEV_SAMP(age) AS age, VAR_POP(income) AS income FROM orders GROUP BY channel ORDER BY channel;

-- name: correlation of age and sales
SELECT CORR(age, sales) AS r, COVAR_POP(income, profit) AS c FROM orders;

-- name: trend line
SELECT REGR_SLOPE(profit, age) AS slope, REGR_INTERCEPT(profit, age) AS intercept FROM orders;

-- name: weighted mean rating
SELECT category, SUM(rating * sales) / SUM(sales) FILTER (WHERE rating IS NOT NULL) AS rating FROM orders GROUP BY category ORDER BY category;

-- name: approximate median
SELECT region, APPROX_QUANTILE(age, 0.5) AS age FROM orders GROUP BY region ORDER BY region;

-- name: several rates at once
SELECT region, AVG((payment = 'card')::INT) AS card, AVG((gender = 'f')::INT) AS women, AVG((complaint = 'late')::INT) AS late, COUNT(*) AS orders
FROM orders GROUP BY region ORDER BY region;

-- name: rating of rich and poor
SELECT CORR(rating, income) AS r, AVG(rating) FILTER (WHERE income >= 80) - AVG(rating) FILTER (WHERE income < 40) AS gap FROM orders;
